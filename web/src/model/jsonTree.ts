/**
 * A JSON value as the rows of a tree, of which only those exist that somebody has opened. Whatever
 * is in the value, the rows are few and every text in them is short.
 */

/** Rows that a value shows before anybody has opened anything. */
const rowsAtFirst = 60;
/** Children of one array or object that are shown at once; a row behind them asks for as many more. */
const childrenAtOnce = 100;
/** Characters of a string in its own row. */
const previewChars = 600;
/** Characters of an opened string that are shown at once, and at most without a viewer. */
const textAtOnce = 4_000;
const textAtMost = 40_000;
/** Rows of one tree at most. */
const maxRows = 3_000;

export interface TreeState {
  /** Paths of what is open. */
  open: ReadonlySet<string>;
  /** Children or characters that are shown of what has more than are shown at once. */
  shown: ReadonlyMap<string, number>;
  /** The row that keys and buttons act on. */
  selected: string;
}

interface Place {
  /** Unique in the tree: a JSON pointer, with a suffix for rows that are no value. */
  id: string;
  /** Where the value is, as jq writes it. */
  path: string;
  depth: number;
  parent: string | null;
  /** From 1, among `siblings`. */
  position: number;
  siblings: number;
}

export type TreeRow =
  | (Place & {
      kind: "value";
      key: string | number | null;
      value: unknown;
      type: "object" | "array" | "string" | "number" | "boolean" | "null";
      /** The value in one short line, as JSON; empty for what has children. */
      preview: string;
      canOpen: boolean;
      isOpen: boolean;
    })
  | (Place & { kind: "text"; value: string; text: string })
  | (Place & { kind: "more"; of: string; value: unknown; hidden: number; unit: "item" | "character"; next: "rows" | "viewer" })
  | (Place & { kind: "end" });

export const root = "";

/** The state of a tree nobody has touched: as much is open as fits a screen, outer things first. */
export function untouched(value: unknown): TreeState {
  const open = new Set<string>();
  let level: { id: string; value: unknown }[] = [{ id: root, value }];
  let rows = 1;
  while (level.length > 0) {
    const next: typeof level = [];
    for (const node of level) {
      const size = sizeOf(node.value);
      const added = Math.min(size, childrenAtOnce) + (size > childrenAtOnce ? 1 : 0);
      if (size === 0 || (rows + added > rowsAtFirst && node.id !== root)) continue;
      rows += added;
      open.add(node.id);
      for (const [key, child] of childrenOf(node.value, childrenAtOnce)) {
        if (isContainer(child)) next.push({ id: idOf(node.id, key), value: child });
      }
    }
    level = next;
  }
  return { open, shown: new Map(), selected: root };
}

export function treeRows(value: unknown, state: TreeState): TreeRow[] {
  const rows: TreeRow[] = [];
  const place: Place = { id: root, path: ".", depth: 1, parent: null, position: 1, siblings: 1 };
  addValue(rows, state, null, value, place);
  if (rows.length > maxRows) {
    rows.length = maxRows;
    rows.push({ ...place, kind: "end", id: "end", path: "." });
  }
  return rows;
}

function addValue(rows: TreeRow[], state: TreeState, key: string | number | null, value: unknown, place: Place): void {
  if (rows.length > maxRows) return;
  const canOpen = isContainer(value)
    ? sizeOf(value) > 0
    : typeof value === "string" && (value.length > previewChars || value.includes("\n"));
  const isOpen = canOpen && state.open.has(place.id);
  const type = typeOf(value);
  rows.push({ ...place, kind: "value", key, value, type, preview: previewOf(value), canOpen, isOpen });
  if (!isOpen) return;
  if (typeof value === "string") addText(rows, state, value, place);
  else addChildren(rows, state, value, place);
}

function addChildren(rows: TreeRow[], state: TreeState, value: unknown, place: Place): void {
  const size = sizeOf(value);
  const shown = Math.min(size, state.shown.get(place.id) ?? childrenAtOnce);
  const inside = { depth: place.depth + 1, parent: place.id, siblings: shown < size ? shown + 1 : shown };
  let position = 0;
  for (const [key, child] of childrenOf(value, shown)) {
    position += 1;
    addValue(rows, state, key, child, {
      ...inside,
      id: idOf(place.id, key),
      path: pathOf(place.path, key),
      position,
    });
  }
  if (shown < size) {
    const more = { id: `${place.id}#more`, path: place.path, position: shown + 1 };
    rows.push({ ...inside, ...more, kind: "more", of: place.id, value, hidden: size - shown, unit: "item", next: "rows" });
  }
}

function addText(rows: TreeRow[], state: TreeState, value: string, place: Place): void {
  const shown = Math.min(value.length, state.shown.get(place.id) ?? textAtOnce);
  const hidden = value.length - shown;
  const inside = { path: place.path, depth: place.depth + 1, parent: place.id, siblings: hidden > 0 ? 2 : 1 };
  rows.push({ ...inside, kind: "text", id: `${place.id}#text`, position: 1, value, text: cut(value, shown) });
  if (hidden === 0) return;
  const next = shown < textAtMost ? "rows" : "viewer";
  const more = { id: `${place.id}#more`, of: place.id, position: 2 };
  rows.push({ ...inside, ...more, kind: "more", value, hidden, unit: "character", next });
}

/** Opens or closes a row. */
export function toggled(state: TreeState, id: string, open: boolean): TreeState {
  const known = new Set(state.open);
  if (open) known.add(id);
  else known.delete(id);
  return { ...state, open: known };
}

/** Shows more of what `row` stands for. */
export function extended(state: TreeState, row: TreeRow & { kind: "more" }): TreeState {
  const step = row.unit === "item" ? childrenAtOnce : textAtMost;
  const now = state.shown.get(row.of) ?? (row.unit === "item" ? childrenAtOnce : textAtOnce);
  const most = row.unit === "item" ? now + step : textAtMost;
  return { ...state, shown: new Map(state.shown).set(row.of, Math.min(now + step, most)) };
}

export type TreeKey = "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight" | "Home" | "End";

/** What a key does in a tree: the row it leads to, or what it opens or closes. */
export function pressed(rows: readonly TreeRow[], state: TreeState, key: TreeKey): TreeState {
  const at = Math.max(0, rows.findIndex((row) => row.id === state.selected));
  const row = rows[at];
  if (row === undefined) return state;
  const select = (to: TreeRow | undefined): TreeState => (to === undefined ? state : { ...state, selected: to.id });
  switch (key) {
    case "ArrowUp":
      return select(rows[at - 1]);
    case "ArrowDown":
      return select(rows[at + 1]);
    case "Home":
      return select(rows[0]);
    case "End":
      return select(rows.at(-1));
    case "ArrowRight":
      if (row.kind !== "value" || !row.canOpen) return state;
      return row.isOpen ? select(rows[at + 1]) : toggled(state, row.id, true);
    case "ArrowLeft":
      if (row.kind === "value" && row.isOpen) return toggled(state, row.id, false);
      return select(rows.find((other) => other.id === row.parent));
  }
}

/** A value as a person wants to paste it: a string as its text, all else as JSON. */
export function copiedValue(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

function isContainer(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function sizeOf(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  return isContainer(value) ? Object.keys(value).length : 0;
}

function* childrenOf(value: unknown, limit: number): Generator<[string | number, unknown]> {
  if (Array.isArray(value)) {
    for (let at = 0; at < Math.min(value.length, limit); at++) yield [at, value[at]];
    return;
  }
  const known = value as Record<string, unknown>;
  for (const key of Object.keys(known).slice(0, limit)) yield [key, known[key]];
}

function typeOf(value: unknown): (TreeRow & { kind: "value" })["type"] {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "array";
  const type = typeof value;
  return type === "object" || type === "string" || type === "boolean" ? type : "number";
}

function previewOf(value: unknown): string {
  if (isContainer(value)) return "";
  if (typeof value !== "string") return JSON.stringify(value) ?? "null";
  if (value.length <= previewChars) return JSON.stringify(value);
  return `${JSON.stringify(cut(value, previewChars)).slice(0, -1)}\u2026`;
}

/** The beginning of a text, never with half of a character at its end. */
function cut(text: string, chars: number): string {
  if (text.length <= chars) return text;
  const code = text.charCodeAt(chars - 1);
  return text.slice(0, code >= 0xd800 && code <= 0xdbff ? chars - 1 : chars);
}

function idOf(parent: string, key: string | number): string {
  return `${parent}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1").replaceAll("#", "~2")}`;
}

function pathOf(parent: string, key: string | number): string {
  const base = parent === "." ? "" : parent;
  if (typeof key === "number") return `${base === "" ? "." : base}[${key}]`;
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(key)) return `${base}.${key}`;
  return `${base === "" ? "." : base}[${JSON.stringify(key)}]`;
}
