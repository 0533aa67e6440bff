import type { Cutter } from "./support/proxy";
import { expect, test } from "./support/test";

const task = "!slow 60\nSay this slowly: one two three four five six seven.\n$ ls";

test("the connection breaks inside, after and between all messages of a turn", async ({ behindProxy, server }) => {
  test.slow();
  const { app, proxy } = await behindProxy(server);
  await app.send("the first");
  await app.ended(1);
  const id = await app.sessionId();
  await app.continueSession(id);
  await app.live(id);

  const first = (await server.turns(id)).lastSeq + 1;
  const met = new Map<string, number>();
  proxy.cutter = ({ key }) => {
    const times = (met.get(key) ?? 0) + 1;
    met.set(key, times);
    return times === 1 ? "cut inside" : times === 2 ? "cut after" : "pass";
  };
  await app.send(task);
  await app.ended(2);
  const { turns, lastSeq } = await server.turns(id);
  await expect(app.byId("log")).toHaveAttribute("data-last-seq", String(lastSeq), { timeout: 60_000 });
  await app.expectExactlyOnce(id);

  // It was cut everywhere: in every event and after it, and between each view and its event.
  const cut = new Set(proxy.cuts.map(({ key, fate }) => `${fate} ${key}`));
  for (let seq = first; seq <= lastSeq; seq++) {
    expect(cut).toContain(`cut inside event:${seq}`);
    expect(cut).toContain(`cut after event:${seq}`);
  }
  const views = [...met.keys()].filter((key) => key.startsWith("view:"));
  expect(views.length).toBeGreaterThan(20);
  for (const view of views) expect(cut).toContain(`cut after ${view}`);
  expect(turns).toHaveLength(2);

  const before = await app.conversation();
  await app.page.reload();
  await expect.poll(() => app.conversation()).toBe(before);
});

test("connections that last for one message, then two, three and so on", async ({ behindProxy, server }) => {
  const { app, proxy } = await behindProxy(server);
  await app.send("the first");
  await app.ended(1);
  const id = await app.sessionId();
  await app.continueSession(id);
  await app.live(id);

  const { connections } = proxy;
  const growing: Cutter = ({ connection, position }) =>
    position >= Math.max(1, connection - connections) ? "cut after" : "pass";
  proxy.cutter = growing;
  await app.send(task);
  await app.ended(2);
  await app.expectExactlyOnce(id);
  expect(proxy.cuts.length).toBeGreaterThan(5);
});

test("the server comes back with another token: the page says how to get in again", async ({ app, server }) => {
  await app.send("the first");
  await app.ended(1);
  const id = await app.sessionId();
  await app.live(id);
  await server.kill();
  await server.restart("another-token");
  await expect(app.byId("connection")).toHaveAttribute("data-state", "error");
  await expect(app.byId("error-banner").first()).toContainText("token");
  // What was shown stays.
  await expect(app.turn(1)).toContainText("the first");
  await app.page.goto(server.url());
  await app.openSession(id);
  await expect(app.turn(1)).toContainText("the first");
});

test("the server is away for a while: the page says so and catches up", async ({ app, server }) => {
  await app.send("the first");
  await app.ended(1);
  const id = await app.sessionId();
  await app.live(id);
  await server.kill();
  await expect(app.byId("connection")).toHaveAttribute("data-state", "reconnecting");
  await app.continueSession(id);
  await app.send("into the void");
  await expect(app.byId("error-banner")).toContainText("server does not answer");
  await expect(app.byId("composer")).toHaveValue("into the void");
  await server.restart();
  await app.live(id);
  await app.byId("send").click();
  await app.ended(2);
  await expect(app.byId("error-banner")).toHaveCount(0);
  await app.expectExactlyOnce(id);
});
