import type { TurnHead } from "../api/types";

/** A run of log rows under one heading. Boundaries come from the read model, never from the log. */
export interface LogSegment {
  turn: number | null;
  from: number;
  to: number;
  /** Index of the heading in the flat list of rows. */
  row: number;
}

export interface LogLayout {
  segments: LogSegment[];
  rows: number;
}

export type LogRow = { kind: "heading"; segment: LogSegment } | { kind: "event"; seq: number };

type Bounds = Pick<TurnHead, "turn" | "startSeq" | "endSeq">;

export function layoutLog(turns: readonly Bounds[], lastSeq: number): LogLayout {
  const segments: LogSegment[] = [];
  let rows = 0;
  let next = 0;
  const add = (turn: number | null, from: number, to: number): void => {
    if (to < from) return;
    segments.push({ turn, from, to, row: rows });
    rows += to - from + 2;
    next = to + 1;
  };
  turns.forEach((turn, index) => {
    const start = Math.max(turn.startSeq, next);
    if (start > lastSeq) return;
    const following = turns[index + 1]?.startSeq;
    const limit = following === undefined ? lastSeq : Math.min(lastSeq, following - 1);
    add(null, next, start - 1);
    add(turn.turn, start, Math.min(turn.endSeq ?? limit, limit));
  });
  add(null, next, lastSeq);
  return { segments, rows };
}

export function rowAt(layout: LogLayout, index: number): LogRow | null {
  const { segments } = layout;
  let low = 0;
  let high = segments.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    const candidate = segments[middle];
    if (candidate !== undefined && candidate.row <= index) low = middle;
    else high = middle - 1;
  }
  const segment = segments[low];
  if (segment === undefined || index < segment.row || index >= layout.rows) return null;
  if (index === segment.row) return { kind: "heading", segment };
  return { kind: "event", seq: segment.from + (index - segment.row - 1) };
}

/** The row of an event; the last row when the log does not have it. */
export function rowOfEvent(layout: LogLayout, seq: number): number {
  const segment = layout.segments.find((one) => seq <= one.to);
  if (segment === undefined) return Math.max(0, layout.rows - 1);
  return segment.row + 1 + Math.max(0, seq - segment.from);
}
