import type { RunStarted, Summary, Turn } from "../api/types";
import type { SessionViewState } from "./sessionView";

export interface CurrentRun {
  sessionId: string;
  runId: string;
  status: string;
  running: boolean;
  resumed: boolean;
}

/**
 * The run to show as current: the one this page started, else (after a reload) the last turn of the
 * viewed session while it runs. A turn after the first is by definition a continuation.
 */
export function currentRun(
  started: RunStarted | null,
  view: Pick<SessionViewState, "id" | "model">,
  sessions: readonly Summary[],
): CurrentRun | null {
  const { id, model } = view;
  const last = model.turns.at(-1);
  if (id !== null && last !== undefined && model.running && started?.sessionId !== id) {
    return fromTurn(id, last, model.status);
  }
  if (started === null) return null;
  const base = { sessionId: started.sessionId, runId: started.runId, resumed: started.resumed };
  if (id === started.sessionId && last !== undefined) {
    // Another client may have continued the same session since: the read model knows best.
    if (model.running && last.runId !== started.runId) return fromTurn(id, last, model.status);
    const turn = model.turns.find((candidate) => candidate.runId === started.runId);
    if (turn === undefined || turn.reason === null) {
      return { ...base, status: model.status, running: model.running };
    }
    return { ...base, status: turn.reason.kind, running: false };
  }
  const status = sessions.find((session) => session.id === started.sessionId)?.status ?? "running";
  return { ...base, status, running: status === "running" || status === "waiting" };
}

function fromTurn(sessionId: string, turn: Turn, status: string): CurrentRun {
  return { sessionId, runId: turn.runId, status, running: true, resumed: turn.turn > 1 };
}
