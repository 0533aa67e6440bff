import { describe, expect, it } from "vitest";
import { diffsOfCall, parseUnified, replacement, type FileDiff } from "../src/model/diff";

const shape = (file: FileDiff | undefined): string[] =>
  file?.lines.map((line) => `${line.kind}:${line.text}`) ?? [];

describe("parseUnified", () => {
  it("reads files, hunks and line numbers, and passes over what stands around", () => {
    const text = "changed `a`\n--- a/a.txt\n+++ b/a.txt\n@@ -3,3 +3,3 @@ fn\n x\n-y\n+z\n w\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone";
    const [first, second] = parseUnified(text);
    expect(first).toMatchObject({ path: "a.txt", added: 1, removed: 1 });
    expect(shape(first)).toEqual(["hunk:@@ -3,3 +3,3 @@ fn", "same:x", "del:y", "add:z", "same:w"]);
    expect(first?.lines[3]).toMatchObject({ before: null, after: 4 });
    expect(second).toMatchObject({ path: "b", added: 0, removed: 1 });
  });

  it("takes lines of a hunk that look like heads for what they are", () => {
    const text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n same";
    expect(shape(parseUnified(text)[0])).toEqual(["hunk:@@ -1,2 +1,2 @@", "del:-- old", "add:++ new", "same:same"]);
  });

  it("says when a difference was shortened, and survives nonsense", () => {
    const cut = "--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n-a\n[the difference has 99 bytes; its first 9 are shown]";
    expect(shape(parseUnified(cut)[0]).at(-1)).toContain("note:the difference has 99 bytes");
    expect(parseUnified("--- \n+++ \n@@ nothing @@")).toEqual([]);
    expect(parseUnified("no difference")).toEqual([]);
  });
});

describe("diffsOfCall", () => {
  it("prefers the result of an edit, and falls back on its arguments", () => {
    const args = JSON.stringify({ path: "a", old_string: "one\ntwo", new_string: "one\n2" });
    expect(shape(diffsOfCall("edit", args, "")?.[0])).toEqual(["same:one", "del:two", "add:2"]);
    const result = "--- a/a\n+++ b/a\n@@ -9 +9 @@\n-two\n+2";
    expect(diffsOfCall("edit", args, result)?.[0]?.lines[1]).toMatchObject({ before: 9 });
  });

  it("shows each of several edits", () => {
    const edits = [{ old_string: "a", new_string: "b" }, { old_string: "c", new_string: "d", replace_all: true }];
    const [file] = diffsOfCall("edit", JSON.stringify({ path: "x", edits }), "") ?? [];
    expect(file).toMatchObject({ added: 2, removed: 2 });
    expect(shape(file)).toContain("note:every occurrence");
  });

  it("shows all of what is written", () => {
    const [file] = diffsOfCall("write", JSON.stringify({ path: "x", content: "a\nb\n" }), "") ?? [];
    expect(shape(file)).toEqual(["add:a", "add:b"]);
    expect(diffsOfCall("write", JSON.stringify({ path: "x", content: "" }), "")?.[0]?.lines).toEqual([]);
  });

  it("reads a patch between its marks", () => {
    const patch = "*** Begin Patch\n*** Add File: n\n+new\n*** Update File: u\n*** Move to: v\n@@ fn\n keep\n-x\n+y\n*** Delete File: d\n*** End Patch";
    const files = diffsOfCall("apply_patch", JSON.stringify({ patch }), "") ?? [];
    expect(files.map((file) => [file.path, file.added, file.removed])).toEqual([["n", 1, 0], ["u", 1, 1], ["d", 0, 0]]);
  });

  it("leaves other tools and broken arguments alone", () => {
    expect(diffsOfCall("shell", "{}", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b")).toBeNull();
    for (const args of ["", "{", "[]", "null", '{"path":1}', '{"path":"x"}']) expect(diffsOfCall("edit", args, "")).toBeNull();
  });
});

describe("replacement", () => {
  it("keeps what both texts share at their ends", () => {
    expect(replacement("a\nb\nc", "a\nc").map((line) => line.kind)).toEqual(["same", "del", "same"]);
    expect(replacement("a\na", "a\na\na").map((line) => line.kind)).toEqual(["same", "same", "add"]);
  });
});
