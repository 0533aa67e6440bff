import { api } from "../api/client";
import { ApiError, toHuman, type HumanError } from "../api/problem";
import { turnPages, type TurnPage } from "../api/turnPages";
import type { Damage, Summary, ViewMessage } from "../api/types";
import { applyView, emptyModel, fromSnapshot, type ReadModel } from "../model/patch";
import { budget, holds, trimTail } from "../model/window";
import { Follower, type ConnectionState } from "../sse/follower";
import { LogStore } from "./logStore";
import { OlderTurns } from "./olderTurns";
import { probe } from "./probe";
import type { Place } from "./route";
import { Store } from "./store";

export interface SessionViewState {
  id: string | null;
  phase: "none" | "loading" | "ready" | "error";
  error: HumanError | null;
  model: ReadModel;
  damage: Damage | null;
  summary: Summary | null;
  connection: ConnectionState;
  /** Why following ended for good, when it did. */
  followError: HumanError | null;
  log: LogStore | null;
  /** What the reader was sent to, by a link or a jump; `at` tells one request from the next. */
  sought: { place: Place; at: number; found: boolean | null } | null;
}

const nothing: SessionViewState = {
  id: null,
  phase: "none",
  error: null,
  model: emptyModel,
  damage: null,
  summary: null,
  connection: "idle",
  followError: null,
  log: null,
  sought: null,
};

const readBudget = { items: budget.items * 4, chars: budget.chars * 4 };

/** The session on the screen: a snapshot of the server's read model, then its patches. */
export class SessionView {
  readonly state = new Store<SessionViewState>(nothing);
  /** What lies before the part that `state.model` has. */
  readonly older = new OlderTurns();
  /** Called when the session's status may have changed, so that lists can refresh. */
  onActivity: () => void = () => {};

  #generation = new AbortController();
  #follower: Follower | undefined;
  #model: ReadModel = emptyModel;
  #flush: ReturnType<typeof setTimeout> | undefined;
  #sought = 0;
  #wanted: { id: string | null; place: Place } | null = null;
  /** While the reader is elsewhere nothing is cut away behind what is being read. */
  #atEnd = true;

  constructor() {
    const wake = (): void => this.#follower?.wake();
    globalThis.addEventListener?.("online", wake);
    globalThis.document?.addEventListener("visibilitychange", wake);
  }

  /** Shows a session. `justStarted` tolerates that its first bytes are not on disk yet. */
  async open(id: string | null, justStarted = false): Promise<void> {
    if (id === this.state.get().id && id !== null && this.state.get().phase !== "error") return;
    this.#close();
    probe.reset(id, -1);
    if (id === null) {
      this.state.set(nothing);
      return;
    }
    const generation = this.#generation;
    this.state.set({ ...nothing, id, phase: "loading", connection: "connecting" });
    try {
      // With it from the first moment on, so that nothing makes room for it later.
      const heading = api.session(id, generation.signal).then(
        ({ summary }) => summary,
        () => null,
      );
      const snapshot = await this.#snapshot(id, justStarted, generation.signal);
      const summary = await heading;
      if (generation.signal.aborted) return;
      this.#show(id, snapshot, summary);
      if (summary === null) void this.refreshSummary();
    } catch (error) {
      if (generation.signal.aborted) return;
      this.state.patch({ phase: "error", error: toHuman(error), connection: "error" });
    }
  }

  /** Seeks as soon as the session is on the screen. */
  seekOnceOpen(id: string | null, place: Place): void {
    const state = this.state.get();
    if (state.id === id && state.phase === "ready") void this.seek(place);
    else this.#wanted = { id, place };
  }

  /** Brings an event or a turn into what the page holds, and says that it is sought. */
  async seek(place: Place): Promise<void> {
    if (this.state.get().phase !== "ready") return;
    this.#sought += 1;
    const at = this.#sought;
    const isHere = this.#holds(place);
    this.state.patch({ sought: { place, at, found: isHere ? true : null } });
    if (isHere) return;
    const found = await this.older.goTo(place);
    if (this.state.get().sought?.at === at) this.state.patch({ sought: { place, at, found } });
  }

  /** Goes to the first turn. */
  async toStart(): Promise<void> {
    if (this.state.get().phase !== "ready") return;
    const front = (): Pick<ReadModel, "turns" | "from"> => this.older.state.get().pages[0] ?? this.#model;
    if (front().from > 0) await this.older.goTo("oldest");
    const start = front().turns[0];
    if (start !== undefined) await this.seek({ turn: start.turn });
  }

  #holds(place: Place): boolean {
    const { pages } = this.older.state.get();
    const { from, turns, viewSeq } = this.#model;
    const here = [...pages, { from, to: viewSeq + 1, turns }];
    if ("event" in place) return here.some((page) => holds(page, place.event));
    return here.some((page) =>
      page.turns.some((turn) => turn.turn === place.turn && turn.startSeq >= page.from),
    );
  }

  /** Says whether the reader is at the end, where the page may let go of what is far above. */
  atEnd(atEnd: boolean): void {
    this.#atEnd = atEnd;
  }

  reload(): void {
    const { id } = this.state.get();
    this.#close();
    this.state.set(nothing);
    void this.open(id);
  }

  async refreshSummary(): Promise<void> {
    const { id } = this.state.get();
    if (id === null) return;
    try {
      const { summary } = await api.session(id, this.#generation.signal);
      if (this.state.get().id === id) this.state.patch({ summary });
    } catch {
      // The heading is a convenience; the conversation itself already shows what is wrong.
    }
  }

  acceptSummary(summary: Summary): void {
    if (this.state.get().id === summary.id) this.state.patch({ summary });
  }

  #close(): void {
    this.#generation.abort();
    this.#generation = new AbortController();
    this.#follower?.stop();
    this.#follower = undefined;
    this.state.get().log?.close();
    clearTimeout(this.#flush);
    this.#flush = undefined;
    this.#atEnd = true;
    this.#model = emptyModel;
    this.older.reset(null, 0);
  }

  async #snapshot(id: string, justStarted: boolean, signal: AbortSignal): Promise<TurnPage> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await turnPages.newest(id, signal);
      } catch (error) {
        const early = error instanceof ApiError && error.status === 404 && justStarted;
        if (!early || attempt >= 20) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  #show(id: string, snapshot: TurnPage, summary: Summary | null): void {
    this.#model = fromSnapshot(snapshot);
    this.older.reset(id, snapshot.from);
    const log = new LogStore(id, snapshot.lastSeq);
    probe.reset(id, snapshot.lastSeq);
    this.state.patch({ phase: "ready", model: this.#model, damage: snapshot.damage, summary, log });
    const follower = new Follower({
      url: (after) => api.eventsUrl(id, after),
      lastSeq: snapshot.lastSeq,
      onView: (view) => this.#apply(view),
      onEvent: (event) => {
        probe.event(event.seq);
        log.add(event);
      },
      onCaughtUp: (reconnected) => {
        if (reconnected && this.#model.running) void this.#resync(id);
      },
      onState: (connection) => {
        if (this.#follower === follower) this.state.patch({ connection });
      },
      onFatal: (error) => this.state.patch({ followError: toHuman(error) }),
    });
    this.#follower = follower;
    void follower.run();
    const wanted = this.#wanted;
    this.#wanted = null;
    if (wanted?.id === id) void this.seek(wanted.place);
  }

  #apply(view: ViewMessage): void {
    const next = applyView(this.#model, view);
    if (next === this.#model) return;
    probe.view(view.seq);
    const settled = next.running !== this.#model.running || next.status !== this.#model.status;
    this.#model = this.#bounded(next);
    this.#flush ??= setTimeout(() => {
      this.#flush = undefined;
      this.state.patch({ model: this.#model });
    }, 16);
    if (settled) {
      this.onActivity();
      void this.refreshSummary();
    }
  }

  /** A run can go on for days while it is watched: what is far above the end is let go. */
  #bounded(model: ReadModel): ReadModel {
    // Somebody who reads in the tail must not lose the ground; that has its bound too.
    const isRead = !this.#atEnd && !this.older.state.get().gap;
    const { turns, from } = trimTail(model.turns, model.from, isRead ? readBudget : budget);
    if (from === model.from) return model;
    // What is older than the cut is no longer next to the tail.
    if (this.#atEnd) this.older.release();
    this.older.tailBegins(from);
    return { ...model, turns, from };
  }

  /**
   * A server that was killed mid-run writes no closing events until someone resumes the session, so
   * after a reconnect the stream alone would leave the turn "running" for ever.
   */
  async #resync(id: string): Promise<void> {
    try {
      const snapshot = await turnPages.newest(id, this.#generation.signal);
      if (this.state.get().id !== id || snapshot.running) return;
      if (snapshot.lastSeq < this.#model.viewSeq) return;
      this.#model = fromSnapshot(snapshot);
      this.older.reset(id, snapshot.from);
      this.state.patch({ model: this.#model, damage: snapshot.damage });
      this.onActivity();
    } catch {
      // The next reconnect asks again.
    }
  }
}
