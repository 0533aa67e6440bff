import { Store } from "./store";

export interface Route {
  /** The session on the screen. */
  viewed: string | null;
  /** The session that the next task continues; independent of the one on the screen. */
  continuing: string | null;
}

const pattern = /^#\/session\/([^/?#]+)$/;

export function viewedFromHash(hash: string): string | null {
  const match = pattern.exec(hash)?.[1];
  if (match === undefined) return null;
  try {
    return decodeURIComponent(match);
  } catch {
    return null;
  }
}

export function hashOf(viewed: string | null): string {
  return viewed === null ? "#/" : `#/session/${encodeURIComponent(viewed)}`;
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
      continuing: typeof saved === "string" ? saved : null,
    });
    window.addEventListener("popstate", () => {
      const viewed = viewedFromHash(location.hash);
      this.state.set({ ...this.state.get(), viewed });
      this.#remember();
    });
  }

  view(viewed: string | null): void {
    if (viewed === this.state.get().viewed) return;
    const { continuing } = this.state.get();
    history.pushState({ continuing }, "", hashOf(viewed));
    this.state.patch({ viewed });
  }

  continue(continuing: string | null): void {
    this.state.patch({ continuing });
    this.#remember();
  }

  #remember(): void {
    history.replaceState({ continuing: this.state.get().continuing }, "");
  }
}
