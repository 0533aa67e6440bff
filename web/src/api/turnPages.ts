/** Reading a conversation in pages. This is the only module that knows how the server cuts it. */

import type { Stretch } from "../model/window";
import type { Place } from "../state/route";
import { api, type TurnsPlace } from "./client";
import type { TurnsResponse } from "./types";

export type TurnPage = TurnsResponse & Stretch;

/** About how many items a page has: a few screens. */
const limit = 80;

export const turnPages = {
  newest: (id: string, signal?: AbortSignal) => read(id, {}, signal),

  /** What ends before an event: `from` of what is there. */
  before: (id: string, seq: number, signal?: AbortSignal) => read(id, { before: seq }, signal),

  /** What begins at an event: `to` of what is there. */
  after: (id: string, seq: number, signal?: AbortSignal) => read(id, { from: seq }, signal),

  oldest: (id: string, signal?: AbortSignal) => read(id, { from: 0 }, signal),

  /** A page that a place is in. Without turns when the session has no such thing. */
  async around(id: string, place: Place, signal?: AbortSignal): Promise<TurnPage> {
    const query = "event" in place ? { around: place.event } : { turn: place.turn };
    const page = await read(id, query, signal);
    return hasPlace(page, place) ? page : { ...page, turns: [] };
  },
};

async function read(id: string, place: TurnsPlace, signal?: AbortSignal): Promise<TurnPage> {
  return api.turns(id, signal, { ...place, limit });
}

function hasPlace(page: TurnPage, place: Place): boolean {
  if ("turn" in place) return page.turns.some((turn) => turn.turn === place.turn);
  return page.from <= place.event && place.event < page.to;
}
