import { createContext, useContext } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { RunStarted, ServerConfig, Summary } from "../api/types";
import { Composer } from "./composer";
import { Deletions } from "./deletions";
import { Router, type Place } from "./route";
import { SessionList } from "./sessionList";
import { SessionView } from "./sessionView";
import { Store } from "./store";

const refreshMs = 8000;

export interface ServerState {
  config: ServerConfig | null;
  error: HumanError | null;
}

/** Wires the parts of the page together; each part knows only itself. */
export class App {
  readonly router = new Router();
  readonly list = new SessionList();
  readonly view = new SessionView();
  readonly composer = new Composer();
  readonly deletions = new Deletions();
  readonly server = new Store<ServerState>({ config: null, error: null });
  /** The run that this page started last. */
  readonly run = new Store<RunStarted | null>(null);
  #started: string | null = null;
  #viewed: string | null = null;
  #place: Place | null = null;

  start(): void {
    this.composer.onStarted = (run) => this.#runStarted(run);
    this.view.onActivity = () => void this.list.refresh();
    this.deletions.onDeleted = (id) => this.#deleted(id);
    this.router.state.subscribe(() => this.#routed());
    this.#routed();
    void this.loadConfig();
    void this.list.load();
    setInterval(() => {
      if (document.visibilityState === "visible") void this.list.refresh();
    }, refreshMs);
  }

  async loadConfig(): Promise<void> {
    try {
      this.server.set({ config: await api.config(), error: null });
    } catch (error) {
      this.server.patch({ error: toHuman(error) });
    }
  }

  retry(): void {
    void this.loadConfig();
    void this.list.load();
    if (this.view.state.get().phase === "error") this.view.reload();
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

  requestDeletion(id: string, title: string): void {
    this.deletions.request({ id, title });
    if (this.router.state.get().continuing === id) this.router.continue(null);
    if (this.router.state.get().viewed === id) this.router.view(null);
  }

  #accept(summary: Summary): void {
    this.list.replace(summary);
    this.view.acceptSummary(summary);
  }

  #deleted(id: string): void {
    this.list.remove(id);
    if (this.run.get()?.sessionId === id) this.run.set(null);
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

  #routed(): void {
    const { viewed, place } = this.router.state.get();
    if (place !== this.#place && place !== null) this.view.seekOnceOpen(viewed, place);
    this.#place = place;
    if (viewed === this.#viewed) return;
    this.#viewed = viewed;
    const justStarted = viewed !== null && viewed === this.#started;
    this.#started = null;
    void this.view.open(viewed, justStarted);
  }
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (app === null) throw new Error("the page is not inside its context");
  return app;
}
