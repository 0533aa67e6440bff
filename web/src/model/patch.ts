import type { Item, Patch, ToolItem, Turn, TurnsResponse, ViewMessage } from "../api/types";

/** The server's read model as the page holds it. Only this module changes it. */
export interface ReadModel {
  turns: readonly Turn[];
  status: string;
  running: boolean;
  /** The last view applied; the snapshot counts as one. */
  viewSeq: number;
}

export const emptyModel: ReadModel = { turns: [], status: "idle", running: false, viewSeq: -1 };

/** A command can print without end; the page keeps the newest part and the log keeps it all. */
export const maxLiveOutput = 512 * 1024;

export function fromSnapshot(snapshot: TurnsResponse): ReadModel {
  return {
    turns: snapshot.turns,
    status: snapshot.status,
    running: snapshot.running,
    viewSeq: snapshot.lastSeq,
  };
}

/** Applies a view once: one that was already applied changes nothing. */
export function applyView(model: ReadModel, view: ViewMessage): ReadModel {
  if (view.seq <= model.viewSeq) return model;
  return { ...view.patches.reduce(applyPatch, model), viewSeq: view.seq };
}

export function applyPatch(model: ReadModel, patch: Patch): ReadModel {
  switch (patch.op) {
    case "turn":
      return { ...model, turns: upsertTurn(model.turns, patch.turn) };
    case "item":
      return onTurn(model, patch.turn, (items) => upsertItem(items, patch.item));
    case "append":
      return onTurn(model, patch.turn, (items) =>
        items.map((item) => (item.id === patch.id ? appended(item, patch) : item)),
      );
    case "status":
      return { ...model, status: patch.status, running: patch.running };
    default:
      // A newer server may send more kinds of patches; the rest of the view still applies.
      return model;
  }
}

function upsertTurn(turns: readonly Turn[], head: Partial<Turn> & { turn: number }): Turn[] {
  const at = turns.findIndex((turn) => turn.turn === head.turn);
  const known = turns[at];
  if (known !== undefined) {
    // The head carries no items, and must not wipe those that are there.
    return turns.with(at, { ...known, ...head, items: known.items });
  }
  const added = { ...head, items: head.items ?? [] } as Turn;
  const before = turns.filter((turn) => turn.turn < head.turn);
  return [...before, added, ...turns.slice(before.length)];
}

function onTurn(model: ReadModel, number: number, change: (items: Item[]) => Item[]): ReadModel {
  const at = model.turns.findIndex((turn) => turn.turn === number);
  const turn = model.turns[at];
  if (turn === undefined) return model;
  return { ...model, turns: model.turns.with(at, { ...turn, items: change(turn.items) }) };
}

function upsertItem(items: Item[], item: Item): Item[] {
  const at = items.findIndex((known) => known.id === item.id);
  return at < 0 ? [...items, item] : items.with(at, item);
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
