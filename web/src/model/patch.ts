import type { Item, Patch, ToolItem, Turn, TurnHead, ViewMessage } from "../api/types";

/** The newest part of the server's read model. Only this module changes what is in it. */
export interface ReadModel {
  /** The newest turns; the first one lacks the items before `from` when it began earlier. */
  turns: readonly Turn[];
  /** First event that is shown. */
  from: number;
  status: string;
  running: boolean;
  /** The last view applied; the snapshot counts as one. */
  viewSeq: number;
  /** Items that came since the snapshot. */
  arrived: number;
}

export const emptyModel: ReadModel = {
  turns: [],
  from: 0,
  status: "idle",
  running: false,
  viewSeq: -1,
  arrived: 0,
};

/** A command can print without end; the page keeps the newest part and the log keeps it all. */
export const maxLiveOutput = 512 * 1024;

type Snapshot = Pick<ReadModel, "turns" | "from" | "status" | "running"> & { lastSeq: number };

export function fromSnapshot({ turns, from, status, running, lastSeq }: Snapshot): ReadModel {
  return { turns, from, status, running, viewSeq: lastSeq, arrived: 0 };
}

/** Applies a view once: one that was already applied changes nothing. */
export function applyView(model: ReadModel, view: ViewMessage): ReadModel {
  if (view.seq <= model.viewSeq) return model;
  return { ...view.patches.reduce(applyPatch, model), viewSeq: view.seq };
}

export function applyPatch(model: ReadModel, patch: Patch): ReadModel {
  switch (patch.op) {
    case "turn":
      return { ...model, turns: upsertTurn(model, patch.turn) };
    case "item":
      return withItem(model, patch.turn, patch.item);
    case "append":
      return onTurn(model, patch.turn, (items) => {
        const at = items.findLastIndex((item) => item.id === patch.id);
        const item = items[at];
        return item === undefined ? items : items.with(at, appended(item, patch));
      });
    case "status":
      return { ...model, status: patch.status, running: patch.running };
    default:
      // A newer server may send more kinds of patches; the rest of the view still applies.
      return model;
  }
}

function upsertTurn({ turns, from }: ReadModel, head: TurnHead): readonly Turn[] {
  const at = turns.findIndex((turn) => turn.turn === head.turn);
  const known = turns[at];
  // The head carries no items, and must not wipe those that are there.
  if (known !== undefined) return turns.with(at, { ...known, ...head, items: known.items });
  // It lies before what is here, and is shown when that is read.
  if (head.startSeq < from) return turns;
  const before = turns.filter((turn) => turn.turn < head.turn);
  return [...before, { ...head, items: [] }, ...turns.slice(before.length)];
}

function onTurn(model: ReadModel, number: number, change: (items: Item[]) => Item[]): ReadModel {
  const at = model.turns.findLastIndex((turn) => turn.turn === number);
  const turn = model.turns[at];
  if (turn === undefined) return model;
  return { ...model, turns: model.turns.with(at, { ...turn, items: change(turn.items) }) };
}

function withItem(model: ReadModel, number: number, item: Item): ReadModel {
  let added = 0;
  const next = onTurn(model, number, (items) => {
    const at = items.findLastIndex((known) => known.id === item.id);
    if (at >= 0) return items.with(at, item);
    // It lies before what is here, and is shown when that is read.
    if (item.seq < model.from) return items;
    added = 1;
    return [...items, item];
  });
  return added === 0 ? next : { ...next, arrived: next.arrived + added };
}

type Append = Extract<Patch, { op: "append" }>;

function appended(item: Item, patch: Append): Item {
  if (patch.kind === "output") {
    return item.kind === "tool" ? appendOutput(item, patch.text) : item;
  }
  if (item.kind !== "assistant") return item;
  const index = patch.part ?? 0;
  const parts = [...item.parts];
  while (parts.length <= index) parts.push({ kind: patch.kind, text: "" });
  const part = parts[index];
  if (part === undefined) return item;
  parts[index] = { ...part, text: part.text + patch.text };
  return { ...item, parts };
}

function appendOutput(item: ToolItem, text: string): ToolItem {
  const output = item.output + text;
  return { ...item, output: output.length > maxLiveOutput ? output.slice(-maxLiveOutput) : output };
}
