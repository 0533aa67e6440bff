import { describe, expect, it } from "vitest";
import type { CountedPage, ListPlace, ListQuery } from "../src/api/acting";
import type { Summary } from "../src/api/types";
import { listPageSize, SessionList, type FetchSessions } from "../src/state/sessionList";

const summary = (id: string, more: Partial<Summary> = {}): Summary =>
  ({ id, title: id, status: "idle", archived: false, pinned: false, tags: [], ...more }) as Summary;

/** A server with these sessions, and a note of what it was asked. */
function server(rows: Summary[]) {
  const asked: { query: Partial<ListQuery>; place: ListPlace }[] = [];
  const held: (() => void)[] = [];
  let hold = false;
  const fetch: FetchSessions = async (query, place, signal) => {
    asked.push({ query, place });
    if (hold) await new Promise<void>((go) => held.push(go));
    if (signal?.aborted === true) throw new DOMException("aborted", "AbortError");
    const shown = rows.filter(
      (row) =>
        row.pinned === place.pinned &&
        row.archived === (query.archived === "true") &&
        (row.title ?? "").includes(query.query ?? ""),
    );
    const skip = place.skip ?? 0;
    const page: CountedPage = { sessions: shown.slice(skip, skip + place.limit), nextCursor: null, rebuilding: false };
    if (place.count === true) page.counts = { shown: shown.length, all: rows.length };
    return page;
  };
  return {
    fetch,
    asked,
    pages: () => asked.filter(({ place }) => place.pinned === false).map(({ place }) => (place.skip ?? 0) / place.limit),
    hold: () => (hold = true),
    release: () => {
      hold = false;
      for (const go of held.splice(0)) go();
    },
  };
}

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));
const many = (count: number): Summary[] => Array.from({ length: count }, (_, at) => summary(`s${at}`));

describe("SessionList", () => {
  it("begins with the pinned sessions and knows how many there are", async () => {
    const list = new SessionList(server([...many(3), summary("top", { pinned: true })]).fetch);
    await list.load();
    expect(list.state.get()).toMatchObject({ phase: "ready", total: 4, all: 4 });
    expect([0, 1, 3].map((place) => list.row(place)?.id)).toEqual(["top", "s0", "s2"]);
    expect(list.placeOf("s2")).toBe(3);
    expect(list.row(4)).toBeUndefined();
  });

  it("jumps anywhere without what lies between, and keeps few pages", async () => {
    const { fetch, pages } = server(many(10_000));
    const list = new SessionList(fetch);
    await list.load();
    list.ensure(9_990, 9_999);
    await settle();
    expect(list.row(9_999)?.id).toBe("s9999");
    expect(list.row(5_000)).toBeUndefined();
    expect(pages()).toEqual([0, 99]);
    for (let page = 1; page < 40; page++) {
      list.ensure(page * listPageSize, page * listPageSize + 20);
      await settle();
    }
    expect(list.loaded().length).toBeLessThanOrEqual(30 * listPageSize);
  });

  it("gives up pages that were scrolled past", async () => {
    const { fetch, hold, release } = server(many(1000));
    const list = new SessionList(fetch);
    await list.load();
    hold();
    list.ensure(300, 310);
    list.ensure(700, 710);
    release();
    await settle();
    expect(list.row(305)).toBeUndefined();
    expect(list.row(705)?.id).toBe("s705");
  });

  it("shows the answer to the last search, whatever order answers come in", async () => {
    const { fetch, hold, release } = server([summary("apple"), summary("banana")]);
    const list = new SessionList(fetch);
    await list.load();
    hold();
    const first = list.search({ query: "apple" });
    const second = list.search({ query: "banana" });
    // What was shown stays until an answer is there.
    expect(list.state.get()).toMatchObject({ searching: true, total: 2 });
    release();
    await Promise.all([first, second]);
    expect(list.loaded().map(({ id }) => id)).toEqual(["banana"]);
    expect(list.state.get()).toMatchObject({ searching: false, total: 1, all: 2 });
  });

  it("refreshes what is in sight, and tells of runs that have ended", async () => {
    const rows = many(500);
    rows[0] = summary("s0", { status: "running" });
    const { fetch } = server(rows);
    const list = new SessionList(fetch);
    const settled: string[] = [];
    list.onSettled = ({ id }) => settled.push(id);
    await list.load();
    list.ensure(250, 260);
    await settle();
    list.ensure(0, 20);
    rows[0] = summary("s0");
    rows.unshift(summary("new"));
    await list.refresh();
    expect(list.state.get().total).toBe(501);
    expect(list.row(0)?.id).toBe("new");
    // It may have moved, so it is fetched again when it is looked at.
    expect(list.row(250)).toBeUndefined();
    expect(settled).toEqual(["s0"]);
  });

  it("leaves no gap where a session was removed", async () => {
    const rows = many(5);
    const { fetch } = server(rows);
    const list = new SessionList(fetch);
    await list.load();
    rows.splice(1, 1);
    list.remove("s1");
    expect([0, 1].map((place) => list.row(place)?.id)).toEqual(["s0", "s2"]);
    expect(list.state.get().total).toBe(4);
  });

  it("says why it cannot be had, and begins anew", async () => {
    let down = true;
    const { fetch } = server(many(1));
    const list = new SessionList(async (...args) => {
      if (down) throw new TypeError("Failed to fetch");
      return fetch(...args);
    });
    await list.load();
    expect(list.state.get()).toMatchObject({ phase: "error", error: { code: "unreachable" } });
    down = false;
    await list.refresh();
    expect(list.state.get()).toMatchObject({ phase: "ready", total: 1, error: null });
  });
});
