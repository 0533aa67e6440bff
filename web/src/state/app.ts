import { createContext, useContext } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import { startRun } from "../api/startRun";
import type { RunStarted, ServerConfig, Summary } from "../api/types";
import { sessionTitle } from "../model/format";
import { Approvals, sessionOf } from "./approvals";
import { Branching } from "./branching";
import { ChangeFeed } from "./changes";
import { Composer, timedKey } from "./composer";
import { Deletions } from "./deletions";
import { Notifier } from "./notifier";
import { Queue } from "./queue";
import { Router, type Place } from "./route";
import { Selection } from "./selection";
import { SessionList } from "./sessionList";
import { SessionTree } from "./sessionTree";
import { SessionView } from "./sessionView";
import { Settings } from "./settings";
import { Store } from "./store";

/** For what no change is told of, such as what another process does. */
const slowRefreshMs = 15_000;
const changePauseMs = 400;

export interface ServerState {
  config: ServerConfig | null;
  error: HumanError | null;
}

/** What lies over the page: at most one at a time. */
export type Overlay = null | "palette" | "help" | "settings" | "approvals" | { compare: [string, string | null] };

/** Wires the parts of the page together; each part knows only itself. */
export class App {
  readonly settings = new Settings();
  readonly router = new Router();
  readonly list = new SessionList();
  /** The list with its open branches. */
  readonly tree = new SessionTree(this.list);
  readonly selection = new Selection();
  readonly view = new SessionView();
  readonly composer = new Composer(this.router.state.get().continuing);
  readonly queue = new Queue();
  readonly approvals = new Approvals();
  readonly branching = new Branching();
  readonly deletions = new Deletions();
  readonly changes = new ChangeFeed();
  readonly notifier = new Notifier(this.settings);
  readonly overlay = new Store<Overlay>(null);
  readonly server = new Store<ServerState>({ config: null, error: null });
  /** The run that this page started last. */
  readonly run = new Store<RunStarted | null>(null);
  #started: string | null = null;
  #viewed: string | null = null;
  #place: Place | null = null;
  #pause: ReturnType<typeof setTimeout> | undefined;
  #missed = false;

  start(): void {
    this.composer.onStarted = (run) => this.#runStarted(run);
    this.composer.onQueued = () => void this.queue.refresh();
    this.view.onActivity = () => this.#changed();
    this.deletions.onDeleted = (id) => this.#deleted(id);
    this.branching.onForked = (id, edited) => void this.#forked(id, edited);
    this.branching.onMoved = () => this.#changed();
    this.branching.onBegin = (text) => this.#begin(text);
    this.list.onSettled = (session) => this.notifier.settled(session);
    this.approvals.onAsked = (question, session) => this.notifier.asked(question, session);
    this.notifier.onOpen = (id) => this.router.view(id);
    this.router.state.subscribe(() => this.#routed());
    this.view.state.subscribe(() => this.#mark());
    this.approvals.state.subscribe(() => this.#mark());
    this.#routed();
    void this.loadConfig();
    void this.list.load();
    this.changes.onChanged = () => this.#changed();
    this.changes.reach.subscribe(() => this.#reached());
    this.changes.start();
    const inSight = (): void => {
      if (document.visibilityState === "visible") this.#changed();
    };
    setInterval(inSight, slowRefreshMs);
    document.addEventListener("visibilitychange", () => {
      this.changes.wake();
      inSight();
    });
  }

  async loadConfig(): Promise<void> {
    try {
      this.server.set({ config: await api.config(), error: null });
    } catch (error) {
      this.server.patch({ error: toHuman(error) });
    }
  }

  retry(): void {
    this.changes.wake();
    void this.loadConfig();
    void this.list.load();
    if (this.view.state.get().phase === "error") this.view.reload();
  }

  show(overlay: Overlay): void {
    this.overlay.set(overlay);
  }

  startNew(): void {
    this.composer.dismissError();
    this.composer.resetPolicy();
    this.router.continue(null);
  }

  newSession(): void {
    this.startNew();
    this.router.view(null);
  }

  continueSession(id: string): void {
    this.composer.dismissError();
    this.composer.resetPolicy();
    this.router.continue(id);
  }

  async update(
    summary: Summary,
    change: { title?: string | null; archived?: boolean; pinned?: boolean },
  ): Promise<void> {
    try {
      const next = await api.update(summary.id, { ...change, revision: summary.revision });
      this.#accept(next);
    } catch (error) {
      // Someone else changed it first: show their version before reporting.
      if (toHuman(error).code === "conflict") this.#accept((await api.session(summary.id)).summary);
      throw error;
    }
  }

  requestDeletion(ids: readonly string[], title: string): void {
    this.deletions.request({ ids, title });
    const { continuing, viewed } = this.router.state.get();
    if (continuing !== null && ids.includes(continuing)) this.router.continue(null);
    if (viewed !== null && ids.includes(viewed)) this.router.view(null);
    this.selection.clear();
  }

  #accept(summary: Summary): void {
    this.list.replace(summary);
    this.view.acceptSummary(summary);
  }

  #deleted(id: string): void {
    this.list.remove(id);
    if (this.run.get()?.sessionId === id) this.run.set(null);
  }

  /** At once, then not again for a moment: with many runs something changes all the time. */
  #changed(): void {
    // Timers of a page out of sight may be held up for a minute, and somebody may wait to be told.
    if (document.visibilityState === "hidden") {
      this.#refresh();
      return;
    }
    if (this.#pause !== undefined) {
      this.#missed = true;
      return;
    }
    this.#refresh();
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      if (!this.#missed) return;
      this.#missed = false;
      this.#changed();
    }, changePauseMs);
  }

  #refresh(): void {
    void this.list.refresh().then(() => this.#refreshHeading());
    void this.approvals.refresh();
    void this.queue.refresh();
  }

  /** What another client has called the session on the screen. Its conversation is followed anyway. */
  async #refreshHeading(): Promise<void> {
    const { id, summary } = this.view.state.get();
    if (id === null || summary === null) return;
    try {
      const row = this.list.find(id) ?? (await sessionOf(id));
      if (row !== undefined) this.view.acceptSummary(row);
    } catch {
      // The heading stays as it was; that the server is out of reach is told elsewhere.
    }
  }

  #reached(): void {
    if (this.changes.reach.get() !== "up") return;
    if (this.server.get().config === null || this.server.get().error !== null) void this.loadConfig();
    const { phase } = this.view.state.get();
    if (phase === "error") this.view.reload();
  }

  #runStarted(run: RunStarted): void {
    this.run.set(run);
    this.#started = run.sessionId;
    if (this.router.state.get().viewed === run.sessionId) {
      this.#started = null;
      const { phase, followError } = this.view.state.get();
      if (phase === "error" || followError !== null) this.view.reload();
    }
    this.router.view(run.sessionId);
    void this.list.refresh();
  }

  async #forked(id: string, edited: string | null): Promise<void> {
    this.continueSession(id);
    this.router.view(id);
    void this.list.refresh();
    if (edited === null) return;
    try {
      this.#runStarted(await startRun({ task: edited, sessionId: id, idempotencyKey: timedKey() }));
    } catch (error) {
      // The fork is there; the text must not be lost.
      this.composer.write(edited);
      this.composer.fail(toHuman(error));
    }
  }

  #begin(text: string): void {
    this.newSession();
    this.composer.write(text);
    void this.composer.send(null);
  }

  #mark(): void {
    const { id, summary } = this.view.state.get();
    const title = id === null || summary === null ? null : sessionTitle(summary);
    this.notifier.mark(title, this.approvals.state.get().questions.length);
  }

  #routed(): void {
    const { viewed, continuing, place } = this.router.state.get();
    if (place !== this.#place && place !== null) this.view.seekOnceOpen(viewed, place);
    this.#place = place;
    this.composer.aim(continuing);
    if (viewed === this.#viewed) return;
    this.#viewed = viewed;
    const justStarted = viewed !== null && viewed === this.#started;
    this.#started = null;
    void this.view.open(viewed, justStarted);
    this.queue.show(viewed);
  }
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (app === null) throw new Error("the page is not inside its context");
  return app;
}
