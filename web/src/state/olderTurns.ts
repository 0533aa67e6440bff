import { toHuman, type HumanError } from "../api/problem";
import { turnPages, type TurnPage } from "../api/turnPages";
import { before, noOlder, trimPages, type Older, type Stretch } from "../model/window";
import type { Place } from "./route";
import { Store } from "./store";

export type Direction = "before" | "after" | "around";

export interface OlderState extends Older {
  /** Whether something comes before all that is here. */
  more: boolean;
  loading: Direction | null;
  error: HumanError | null;
  /** What could not be loaded, so that it can be tried again. */
  failed: Direction | null;
}

const empty: OlderState = { ...noOlder, more: false, loading: null, error: null, failed: null };

/**
 * The part of a session that lies before its tail. One page is under way at a time; a jump takes
 * precedence over it.
 */
export class OlderTurns {
  readonly state = new Store<OlderState>(empty);
  /** First event of the tail. */
  #tail = 0;
  #id: string | null = null;
  #abort = new AbortController();
  #place: Place | "oldest" | null = null;

  /** Begins with nothing before the tail, whose first event is `tail`. */
  reset(id: string | null, tail: number): void {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#id = id;
    this.#tail = tail;
    this.#place = null;
    this.state.set({ ...empty, more: tail > 0 });
  }

  /** The tail let go of its front and begins later now. */
  tailBegins(tail: number): void {
    this.#tail = tail;
    if (this.state.get().pages.length === 0) this.state.patch({ more: tail > 0 });
    else this.state.patch({ gap: true });
  }

  /** Lets go of everything before the tail, when the reader has gone to its end. */
  release(): void {
    const { pages, loading } = this.state.get();
    if (pages.length > 0 || loading === "around") this.reset(this.#id, this.#tail);
  }

  async loadBefore(): Promise<void> {
    const { pages, more, loading } = this.state.get();
    if (!more || loading !== null) return;
    const from = pages[0]?.from ?? this.#tail;
    await this.#load("before", async (id, signal) => {
      const page = await turnPages.before(id, from, signal);
      return () => {
        const held = [page, ...this.state.get().pages];
        const kept = trimPages(held, "back");
        const gap = this.state.get().gap || kept.length < held.length;
        return { pages: kept, more: page.from > 0 && page.turns.length > 0, gap };
      };
    });
  }

  /** Loads on into what is missing between the pages and the tail. */
  async loadAfter(): Promise<void> {
    const { pages, gap, loading } = this.state.get();
    const to = pages.at(-1)?.to;
    if (!gap || loading !== null || to === undefined) return;
    await this.#load("after", async (id, signal) => {
      const page = await turnPages.after(id, to, signal);
      return () => {
        const held = this.#beforeTail([...this.state.get().pages, page]);
        const kept = trimPages(held.pages, "front");
        return { pages: kept, gap: held.gap, more: (kept[0]?.from ?? this.#tail) > 0 };
      };
    });
  }

  /** Goes to where something is. Returns whether the session has it. */
  async goTo(place: Place | "oldest"): Promise<boolean> {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#place = place;
    let found = false;
    await this.#load("around", async (id, signal) => {
      const page = await (place === "oldest" ? turnPages.oldest(id, signal) : turnPages.around(id, place, signal));
      found = page.turns.length > 0;
      return () => (found ? this.#arrive(page) : {});
    });
    return found;
  }

  retry(): void {
    const { failed } = this.state.get();
    if (failed === "before") void this.loadBefore();
    else if (failed === "after") void this.loadAfter();
    else if (failed === "around" && this.#place !== null) void this.goTo(this.#place);
  }

  #arrive(page: TurnPage): Partial<OlderState> {
    const { pages, gap } = this.#beforeTail([page]);
    return { pages, gap, more: (pages[0]?.from ?? this.#tail) > 0 };
  }

  /** What the tail has is shown from there, because only that is kept current. */
  #beforeTail(pages: readonly Stretch[]): Older {
    const last = pages.at(-1);
    const end = last?.to ?? this.#tail;
    if (last === undefined || end <= this.#tail) return { pages, gap: end < this.#tail };
    const rest = before(last, this.#tail);
    return { pages: rest === null ? pages.slice(0, -1) : [...pages.slice(0, -1), rest], gap: false };
  }

  async #load(
    direction: Direction,
    read: (id: string, signal: AbortSignal) => Promise<() => Partial<OlderState>>,
  ): Promise<void> {
    const id = this.#id;
    const { signal } = this.#abort;
    if (id === null) return;
    this.state.patch({ loading: direction, error: null, failed: null });
    try {
      const change = await read(id, signal);
      if (!signal.aborted) this.state.patch({ ...change(), loading: null });
    } catch (error) {
      if (!signal.aborted) {
        this.state.patch({ loading: null, error: toHuman(error), failed: direction });
      }
    }
  }
}
