import { describe, expect, it } from "vitest";
import {
  copiedValue,
  extended,
  pressed,
  toggled,
  treeRows,
  untouched,
  type TreeKey,
  type TreeRow,
  type TreeState,
} from "../src/model/jsonTree";

const shape = (rows: readonly TreeRow[]): string[] =>
  rows.map((row) => {
    if (row.kind === "value") return `${"-".repeat(row.depth)} ${row.path} ${row.isOpen ? "open" : row.preview}`;
    return `${"-".repeat(row.depth)} ${row.kind}`;
  });
const closed: TreeState = { open: new Set(), shown: new Map(), selected: "" };
const keys = (value: unknown, state: TreeState, ...pressedKeys: TreeKey[]): TreeState =>
  pressedKeys.reduce((at, key) => pressed(treeRows(value, at), at, key), state);
const moreOf = (rows: readonly TreeRow[]): TreeRow & { kind: "more" } => {
  const row = rows.find((one) => one.kind === "more");
  if (row?.kind !== "more") throw new Error("nothing is hidden");
  return row;
};

describe("a JSON tree", () => {
  it("shows a small value open, with paths as jq writes them", () => {
    const value = { seq: 1, "a b": [true, null], __proto__x: { $: "x" }, none: {} };
    expect(shape(treeRows(value, untouched(value)))).toEqual([
      "- . open",
      "-- .seq 1",
      '-- .["a b"] open',
      '--- .["a b"][0] true',
      '--- .["a b"][1] null',
      "-- .__proto__x open",
      '--- .__proto__x["$"] "x"',
      "-- .none ",
    ]);
  });

  it("tells keys apart that look like paths", () => {
    const value = { "a/b": { c: 1 }, a: { "b/c": 1, "#more": 2, "b~1c": 3 } };
    const ids = treeRows(value, untouched(value)).map((row) => row.id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("opens outer things first and leaves closed what would fill a screen", () => {
    const value = { list: Array.from({ length: 90 }, (_, at) => ({ at })), small: [1, 2] };
    const rows = treeRows(value, untouched(value));
    expect(shape(rows)).toEqual(["- . open", "-- .list ", "-- .small open", "--- .small[0] 1", "--- .small[1] 2"]);
  });

  it("shows a long array a hundred at a time and says what is hidden", () => {
    const value = Array.from({ length: 1_000_000 }, (_, at) => at);
    let state = untouched(value);
    let rows = treeRows(value, state);
    expect(rows).toHaveLength(102);
    expect(moreOf(rows)).toMatchObject({ hidden: 999_900, unit: "item", siblings: 101, position: 101 });
    state = extended(state, moreOf(rows));
    rows = treeRows(value, state);
    expect(rows).toHaveLength(202);
    expect(moreOf(rows).hidden).toBe(999_800);
  });

  it("never has more rows than a page can bear", () => {
    const value = Array.from({ length: 100 }, () => Array.from({ length: 100 }, () => 1));
    const open = new Set(["", ...value.map((_, at) => `/${at}`)]);
    const rows = treeRows(value, { ...closed, open });
    expect(rows).toHaveLength(3001);
    expect(rows.at(-1)?.kind).toBe("end");
  });

  it("shows ten megabytes of text by its beginning, then in steps, then in a viewer", () => {
    const value = { text: "x".repeat(10_000_000) };
    let state = untouched(value);
    let rows = treeRows(value, state);
    expect(JSON.stringify(rows.map((row) => (row.kind === "value" ? row.preview : ""))).length).toBeLessThan(1000);
    state = toggled(state, "/text", true);
    rows = treeRows(value, state);
    expect(rows.find((row) => row.kind === "text")).toMatchObject({ text: "x".repeat(4_000) });
    expect(moreOf(rows).next).toBe("rows");
    rows = treeRows(value, extended(state, moreOf(rows)));
    expect(rows.find((row) => row.kind === "text")).toMatchObject({ text: "x".repeat(40_000) });
    expect(moreOf(rows).next).toBe("viewer");
  });

  it("does not cut a character in two", () => {
    const value = `${"x".repeat(599)}\u{1f600}${"y".repeat(100)}`;
    const row = treeRows(value, closed)[0];
    expect(row?.kind === "value" && row.preview).toBe(`"${"x".repeat(599)}\u2026`);
  });

  it("goes in and out, up and down by keys as a tree does", () => {
    const value = { a: { b: 1 }, c: 2 };
    expect(keys(value, closed, "ArrowRight")).toMatchObject({ selected: "", open: new Set([""]) });
    expect(keys(value, closed, "ArrowRight", "ArrowRight")).toMatchObject({ selected: "/a" });
    const inside = keys(value, closed, "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight");
    expect(inside.selected).toBe("/a/b");
    expect(keys(value, inside, "ArrowRight")).toBe(inside);
    expect(keys(value, inside, "ArrowLeft").selected).toBe("/a");
    const left = keys(value, inside, "ArrowLeft", "ArrowLeft");
    expect([left.selected, left.open.has("/a")]).toEqual(["/a", false]);
    expect(keys(value, inside, "ArrowDown").selected).toBe("/c");
    expect(keys(value, inside, "ArrowDown", "ArrowDown").selected).toBe("/c");
    expect(keys(value, inside, "End", "ArrowUp").selected).toBe("/a/b");
    expect(keys(value, inside, "Home").selected).toBe("");
    expect(keys(value, inside, "Home", "ArrowLeft", "ArrowLeft")).toMatchObject({ selected: "", open: new Set(["/a"]) });
  });

  it("copies a string as its text and all else as JSON", () => {
    expect(copiedValue("a\nb")).toBe("a\nb");
    expect(copiedValue({ a: [1] })).toBe('{\n  "a": [\n    1\n  ]\n}');
  });
});
