/** Reading a conversation in pages. This is the only module that knows how the server cuts it. */

import type { Stretch } from "../model/window";
import { api, type TurnsPlace } from "./client";
import type { TurnsResponse } from "./types";

export type TurnPage = TurnsResponse & Stretch;

/** An event, or the beginning of a turn. */
export type Target = { seq: number } | { turn: number };

/** About how many items a page has: a few screens. */
const limit = 80;

export const turnPages = {
  newest: (id: string, signal?: AbortSignal) => read(id, {}, signal),

  /** What ends before an event: `from` of what is there. */
  before: (id: string, seq: number, signal?: AbortSignal) => read(id, { before: seq }, signal),

  /** What begins at an event: `to` of what is there. */
  after: (id: string, seq: number, signal?: AbortSignal) => read(id, { from: seq }, signal),

  oldest: (id: string, signal?: AbortSignal) => read(id, { from: 0 }, signal),

  /** A page that a target is in. Without turns when the session has no such thing. */
  async around(id: string, target: Target, signal?: AbortSignal): Promise<TurnPage> {
    const query = "seq" in target ? { around: target.seq } : { turn: target.turn };
    const page = await read(id, query, signal);
    return hasTarget(page, target) ? page : { ...page, turns: [] };
  },
};

async function read(id: string, place: TurnsPlace, signal?: AbortSignal): Promise<TurnPage> {
  return api.turns(id, signal, { ...place, limit });
}

function hasTarget(page: TurnPage, target: Target): boolean {
  if ("turn" in target) return page.turns.some((turn) => turn.turn === target.turn);
  return page.from <= target.seq && target.seq < page.to;
}
