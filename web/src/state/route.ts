import { Store } from "./store";

/** A turn or an event that an address points to. */
export type Place = { turn: number } | { event: number };

export interface Route {
  /** The session on the screen. */
  viewed: string | null;
  /** What of it the address points to. A new object each time it is gone to. */
  place: Place | null;
  /** The session that the next task continues; independent of the one on the screen. */
  continuing: string | null;
}

const pattern = /^#\/(?:session|s)\/([^/?#]+)(?:\/([te])\/(\d{1,15}))?$/;

export function viewedFromHash(hash: string): string | null {
  const match = pattern.exec(hash)?.[1];
  if (match === undefined) return null;
  try {
    return decodeURIComponent(match);
  } catch {
    return null;
  }
}

export function placeFromHash(hash: string): Place | null {
  const match = pattern.exec(hash);
  if (match?.[3] === undefined) return null;
  const number = Number(match[3]);
  return match[2] === "t" ? { turn: number } : { event: number };
}

export function hashOf(viewed: string | null, place: Place | null = null): string {
  if (viewed === null) return "#/";
  const at = place === null ? "" : "turn" in place ? `/t/${place.turn}` : `/e/${place.event}`;
  return `#/session/${encodeURIComponent(viewed)}${at}`;
}

/**
 * What is viewed lives in the address, so it can be shared. What is continued lives in the history
 * entry: it survives a reload (else the next task would silently start a new conversation) and is
 * never part of a link.
 */
export class Router {
  readonly state: Store<Route>;

  constructor() {
    const saved: unknown = (history.state as { continuing?: unknown } | null)?.continuing;
    this.state = new Store<Route>({
      viewed: viewedFromHash(location.hash),
      place: placeFromHash(location.hash),
      continuing: typeof saved === "string" ? saved : null,
    });
    window.addEventListener("popstate", () => {
      const viewed = viewedFromHash(location.hash);
      this.state.set({ ...this.state.get(), viewed, place: placeFromHash(location.hash) });
      this.#remember();
    });
  }

  view(viewed: string | null): void {
    if (viewed === this.state.get().viewed) return;
    const { continuing } = this.state.get();
    history.pushState({ continuing }, "", hashOf(viewed));
    this.state.patch({ viewed, place: null });
  }

  /** Goes to a turn or an event of a session, also when it is there already. */
  seek(viewed: string, place: Place): void {
    const { continuing } = this.state.get();
    history.pushState({ continuing }, "", hashOf(viewed, place));
    this.state.patch({ viewed, place: { ...place } });
  }

  continue(continuing: string | null): void {
    this.state.patch({ continuing });
    this.#remember();
  }

  #remember(): void {
    history.replaceState({ continuing: this.state.get().continuing }, "");
  }
}
