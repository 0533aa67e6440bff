import { afterEach, describe, expect, it, vi } from "vitest";
import type { TurnsResponse } from "../src/api/types";
import { SessionView } from "../src/state/sessionView";

const snapshot = (over: Partial<TurnsResponse>): TurnsResponse => ({
  turns: [],
  lastSeq: 3,
  running: false,
  status: "idle",
  damage: null,
  from: 0,
  to: 4,
  atEnd: true,
  cut: false,
  ...over,
});

type Route = (call: number) => Response;

/** Answers the view's requests; each route counts its own calls. */
function serve(routes: { turns: Route; events: Route }): void {
  const calls = { turns: 0, events: 0 };
  vi.stubGlobal("fetch", async (url: string) => {
    if (url.includes("/events")) return routes.events((calls.events += 1));
    if (url.includes("/turns")) return routes.turns((calls.turns += 1));
    return Response.json({ header: {}, summary: { id: "s" }, turns: [] });
  });
}

function stream(text: string, keepOpen: boolean): Response {
  return new Response(
    new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        if (!keepOpen) controller.close();
      },
    }),
  );
}

const caughtUp = 'retry: 10\n\nevent: caught_up\ndata: {"seq":3}\n\n';

afterEach(() => vi.unstubAllGlobals());

describe("SessionView", () => {
  it("notices after a reconnect that the server was killed in the middle of the run", async () => {
    serve({
      turns: (call) =>
        Response.json(
          snapshot(call === 1 ? { running: true, status: "running" } : { status: "interrupted" }),
        ),
      events: (call) => stream(caughtUp, call > 1),
    });
    const view = new SessionView();
    await view.open("s");
    expect(view.state.get().model.running).toBe(true);
    await vi.waitFor(() => expect(view.state.get().model.status).toBe("interrupted"));
    expect(view.state.get().model.running).toBe(false);
    await view.open(null);
  });

  it("waits for the first bytes of a session that was just started", async () => {
    const missing = (): Response =>
      Response.json({ code: "session_not_found", detail: "no session s" }, { status: 404 });
    serve({
      turns: (call) => (call < 3 ? missing() : Response.json(snapshot({ running: true }))),
      events: () => stream(caughtUp, true),
    });
    const view = new SessionView();
    await view.open("s", true);
    expect(view.state.get().phase).toBe("ready");
    await view.open("unknown");
    serve({ turns: missing, events: () => stream(caughtUp, true) });
    await view.open("other");
    expect(view.state.get()).toMatchObject({ phase: "error", error: { code: "session_not_found" } });
  });

  it("ignores the answer for a session that is no longer on the screen", async () => {
    let release: (response: Response) => void = () => {};
    vi.stubGlobal("fetch", (url: string) => {
      if (url.includes("/a/turns")) return new Promise<Response>((resolve) => (release = resolve));
      if (url.includes("/turns")) return Promise.resolve(Response.json(snapshot({ status: "idle" })));
      if (url.includes("/events")) return Promise.resolve(stream(caughtUp, true));
      return Promise.resolve(Response.json({ header: {}, summary: { id: "b" }, turns: [] }));
    });
    const view = new SessionView();
    const first = view.open("a");
    await view.open("b");
    release(Response.json(snapshot({ status: "running", running: true })));
    await first;
    expect(view.state.get()).toMatchObject({ id: "b", model: { status: "idle" } });
    await view.open(null);
  });
});
