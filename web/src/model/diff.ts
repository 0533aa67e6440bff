/** Differences as lines, from what the log has: a tool's unified diff, or a call's own arguments. */

export type LineKind = "add" | "del" | "same" | "hunk" | "file" | "note";

export interface DiffLine {
  kind: LineKind;
  text: string;
  /** Line numbers, where they are known. */
  before: number | null;
  after: number | null;
}

export interface FileDiff {
  path: string;
  lines: DiffLine[];
  added: number;
  removed: number;
}

/** What a call changes, when it is one that changes files: from its result, else its arguments. */
export function diffsOfCall(name: string, args: string, result: string): FileDiff[] | null {
  if (name === "edit" || name === "apply_patch") {
    const said = parseUnified(result);
    if (said.length > 0) return said;
  }
  const parsed = parseObject(args);
  if (parsed === null) return null;
  if (name === "edit") return diffOfEdit(parsed);
  if (name === "write") return diffOfWrite(parsed);
  if (name === "apply_patch") return diffOfPatch(parsed);
  return null;
}

type Arguments = Record<string, unknown>;

function parseObject(text: string): Arguments | null {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Arguments) : null;
  } catch {
    return null;
  }
}

const hunkHead = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/;

/** Reads unified diffs out of a text; what stands around them is passed over. */
export function parseUnified(text: string): FileDiff[] {
  const files: FileDiff[] = [];
  let file: FileDiff | undefined;
  let before = 0;
  let after = 0;
  let wantBefore = 0;
  let wantAfter = 0;
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? "";
    if (file !== undefined && (wantBefore > 0 || wantAfter > 0)) {
      const kind = kindOf(line);
      if (kind !== null) {
        const counts = { before: kind === "add" ? null : before, after: kind === "del" ? null : after };
        file.lines.push({ kind, text: line.slice(1), ...counts });
        if (kind !== "add") { before += 1; wantBefore -= 1; }
        if (kind !== "del") { after += 1; wantAfter -= 1; }
        if (kind === "add") file.added += 1;
        if (kind === "del") file.removed += 1;
        continue;
      }
      if (line.startsWith("\\")) {
        file.lines.push({ kind: "note", text: line.slice(1).trim(), before: null, after: null });
        continue;
      }
      wantBefore = 0;
      wantAfter = 0;
    }
    const next = lines[at + 1] ?? "";
    if (line.startsWith("--- ") && next.startsWith("+++ ")) {
      file = { path: pathOf(line, next), lines: [], added: 0, removed: 0 };
      files.push(file);
      at += 1;
      continue;
    }
    const head = hunkHead.exec(line);
    if (head !== null && file !== undefined) {
      before = Number(head[1]);
      after = Number(head[3]);
      wantBefore = Number(head[2] ?? 1);
      wantAfter = Number(head[4] ?? 1);
      file.lines.push({ kind: "hunk", text: line, before: null, after: null });
      continue;
    }
    if (file !== undefined && line.startsWith("\\ ")) {
      file.lines.push({ kind: "note", text: line.slice(2), before: null, after: null });
    } else if (file !== undefined && line.startsWith("[the difference has ")) {
      file.lines.push({ kind: "note", text: line.slice(1, -1), before: null, after: null });
    }
  }
  return files.filter((found) => found.lines.length > 0);
}

function kindOf(line: string): "add" | "del" | "same" | null {
  if (line.startsWith("+")) return "add";
  if (line.startsWith("-")) return "del";
  return line.startsWith(" ") || line === "" ? "same" : null;
}

function pathOf(from: string, to: string): string {
  const name = (line: string): string => line.slice(4).split("\t")[0]?.replace(/^[ab]\//, "") ?? "";
  const target = name(to);
  return target === "/dev/null" ? name(from) : target;
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function diffOfEdit(args: Arguments): FileDiff[] | null {
  const path = text(args["path"]);
  if (path === null) return null;
  const edits: unknown[] = Array.isArray(args["edits"]) ? args["edits"] : [args];
  const file: FileDiff = { path, lines: [], added: 0, removed: 0 };
  for (const edit of edits) {
    const fields = (edit ?? {}) as Arguments;
    const before = text(fields["old_string"]);
    const after = text(fields["new_string"]);
    if (before === null || after === null) continue;
    if (file.lines.length > 0) file.lines.push({ kind: "hunk", text: "@@", before: null, after: null });
    append(file, replacement(before, after));
    if (fields["replace_all"] === true) {
      file.lines.push({ kind: "note", text: "every occurrence", before: null, after: null });
    }
  }
  return file.lines.length === 0 ? null : [file];
}

/** The lines two texts share at their start and end stay; all between is replaced. */
export function replacement(before: string, after: string): DiffLine[] {
  const old = before.split("\n");
  const fresh = after.split("\n");
  const most = Math.min(old.length, fresh.length);
  let head = 0;
  while (head < most && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < most - head && old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]) tail += 1;
  const line = (kind: LineKind) => (content: string): DiffLine => ({ kind, text: content, before: null, after: null });
  return [
    ...old.slice(0, head).map(line("same")),
    ...old.slice(head, old.length - tail).map(line("del")),
    ...fresh.slice(head, fresh.length - tail).map(line("add")),
    ...old.slice(old.length - tail).map(line("same")),
  ];
}

function append(file: FileDiff, lines: readonly DiffLine[]): void {
  for (const line of lines) {
    file.lines.push(line);
    if (line.kind === "add") file.added += 1;
    if (line.kind === "del") file.removed += 1;
  }
}

/** The log does not hold what was there before, so all lines of the new content are shown. */
function diffOfWrite(args: Arguments): FileDiff[] | null {
  const path = text(args["path"]);
  const content = text(args["content"]);
  if (path === null || content === null) return null;
  const body = content.endsWith("\n") ? content.slice(0, -1) : content;
  const lines = content === "" ? [] : body.split("\n");
  const file: FileDiff = { path, lines: [], added: 0, removed: 0 };
  append(
    file,
    lines.map((line, at): DiffLine => ({ kind: "add", text: line, before: null, after: at + 1 })),
  );
  return [file];
}

const section = /^\*\*\* (Add File|Delete File|Update File|Move to|End of File|Begin Patch|End Patch):? ?(.*)$/;

/** The two notations of `apply_patch`: its own, and unified diffs. */
function diffOfPatch(args: Arguments): FileDiff[] | null {
  const patch = text(args["patch"]);
  if (patch === null) return null;
  if (!patch.trimStart().startsWith("*** Begin Patch")) {
    const unified = parseUnified(patch);
    return unified.length === 0 ? null : unified;
  }
  const files: FileDiff[] = [];
  let file: FileDiff | undefined;
  for (const line of patch.split("\n")) {
    const found = section.exec(line);
    if (found !== null) {
      const [, what, path] = found;
      const note = (said: string): void => void file?.lines.push({ kind: "note", text: said, before: null, after: null });
      if (what === "Add File" || what === "Update File" || what === "Delete File") {
        file = { path: path ?? "", lines: [], added: 0, removed: 0 };
        files.push(file);
        if (what === "Delete File") note("the file is deleted");
      } else if (what === "Move to") {
        note(`moves to ${path ?? ""}`);
      }
      continue;
    }
    if (file === undefined) continue;
    if (line.startsWith("@@")) {
      file.lines.push({ kind: "hunk", text: line, before: null, after: null });
      continue;
    }
    const kind = kindOf(line);
    if (kind !== null && line !== "") append(file, [{ kind, text: line.slice(1), before: null, after: null }]);
  }
  return files.length === 0 ? null : files;
}
