import { describe, expect, it } from "vitest";
import type { CountedPage } from "../src/api/acting";
import type { Summary } from "../src/api/types";
import { SessionList, type FetchSessions } from "../src/state/sessionList";
import { branchPage, SessionTree } from "../src/state/sessionTree";

/** Sessions by the one they stand below. */
type Forest = Record<string, string[]>;

function world(forest: Forest) {
  const asked: string[] = [];
  const fetch: FetchSessions = async (query, place) => {
    const below = (id: string): string[] => forest[id] ?? [];
    const all = Object.values(forest).flat();
    const ids = place.parent === undefined && query.tree !== "1" ? all : below(place.parent ?? "");
    if (place.pinned === true) return { sessions: [], nextCursor: null, rebuilding: false };
    asked.push(place.parent ?? `roots ${place.skip}`);
    const skip = place.skip ?? 0;
    const page: CountedPage = {
      sessions: ids.slice(skip, skip + place.limit).map((id) => ({ id, title: id, status: "idle", children: below(id).length }) as Summary),
      nextCursor: ids.length > skip + place.limit ? "next" : null,
      rebuilding: false,
    };
    if (place.count === true) page.counts = { shown: ids.length, inTrees: all.length, all: all.length };
    return page;
  };
  const list = new SessionList(fetch);
  const tree = new SessionTree(list, fetch);
  return { list, tree, asked };
}

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));
const seen = (tree: SessionTree): string[] =>
  Array.from({ length: tree.count() }, (_, at) => {
    const row = tree.row(at);
    if (row === undefined) return "?";
    return "-".repeat(row.depth) + (row.kind === "session" ? row.session.id : row.kind);
  });

describe("SessionTree", () => {
  const forest: Forest = { "": ["a", "b", "c"], a: ["a1", "a2"], a1: ["a11"], c: ["c1"] };

  it("shows roots until a branch is opened, and counts every session all the same", async () => {
    const { list, tree } = world(forest);
    await list.search({ tree: "1" });
    expect(seen(tree)).toEqual(["a", "b", "c"]);
    expect(list.state.get()).toMatchObject({ total: 3, shown: 7, all: 7 });
    for (const id of ["c", "a", "a1"]) {
      tree.toggle(id);
      await settle();
    }
    expect(seen(tree)).toEqual(["a", "-a1", "--a11", "-a2", "b", "c", "-c1"]);
    expect(seen(tree).map((_, at) => at)).toEqual(
      ["a", "a1", "a11", "a2", "b", "c", "c1"].map((id) => tree.placeOf(id)),
    );
    tree.toggle("a");
    expect(seen(tree)).toEqual(["a", "b", "c", "-c1"]);
    // What was open in a closed branch is open when it is opened again.
    tree.toggle("a");
    await settle();
    expect(seen(tree).slice(0, 4)).toEqual(["a", "-a1", "--a11", "-a2"]);
  });

  it("is the flat list when no tree is wanted or a status is set", async () => {
    const { list, tree } = world(forest);
    await list.load();
    expect(tree.count()).toBe(7);
    await list.search({ tree: "1", status: "running" });
    expect(tree.count()).toBe(7);
  });

  it("shows a long branch by parts", async () => {
    const { list, tree } = world({ "": ["a"], a: Array.from({ length: 250 }, (_, at) => `f${at}`) });
    await list.search({ tree: "1" });
    tree.toggle("a");
    expect(seen(tree)).toEqual(["a", "-loading"]);
    await settle();
    expect(tree.count()).toBe(1 + branchPage + 1);
    expect(seen(tree).at(-1)).toBe("-more");
    tree.more("a");
    await settle();
    tree.more("a");
    await settle();
    expect(tree.count()).toBe(251);
  });

  it("opens a branch in the middle of ten thousand roots without the others", async () => {
    const roots = Array.from({ length: 10_000 }, (_, at) => `r${at}`);
    const { list, tree, asked } = world({ "": roots, r5000: ["x", "y"] });
    await list.search({ tree: "1" });
    tree.ensure(4_995, 5_010);
    await settle();
    tree.toggle("r5000");
    await settle();
    expect(tree.count()).toBe(10_002);
    expect([5_000, 5_001, 5_002, 5_003].map((at) => seen(tree)[at])).toEqual(["r5000", "-x", "-y", "r5001"]);
    tree.ensure(9_990, 10_001);
    await settle();
    expect(seen(tree)[10_001]).toBe("r9999");
    expect(asked.length).toBeLessThan(8);
  });

  it("looks again at what is open and in sight after a change", async () => {
    const changing: Forest = { "": ["a", "b"], a: ["a1"] };
    const { list, tree } = world(changing);
    await list.search({ tree: "1" });
    tree.toggle("a");
    await settle();
    changing["a"] = ["new", "a1"];
    await list.refresh();
    tree.ensure(0, 2);
    await settle();
    expect(seen(tree)).toEqual(["a", "-new", "-a1", "b"]);
    changing["a"] = [];
    await list.refresh();
    tree.ensure(0, 2);
    await settle();
    expect(seen(tree)).toEqual(["a", "b"]);
  });
});
