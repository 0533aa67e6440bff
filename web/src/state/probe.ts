/**
 * A window into what was delivered, for end-to-end tests that check exactly-once delivery. It is
 * read-only, bounded, and describes the session that is on the screen.
 */
const cap = 100_000;

interface Probe {
  readonly sessionId: string | null;
  readonly snapshotSeq: number;
  readonly appliedSeqs: readonly number[];
  readonly views: readonly number[];
}

declare global {
  interface Window {
    readonly __threadline?: Probe;
  }
}

let sessionId: string | null = null;
let snapshotSeq = -1;
let appliedSeqs: number[] = [];
let views: number[] = [];

export const probe = {
  install(): void {
    const view: Probe = Object.freeze({
      get sessionId() {
        return sessionId;
      },
      get snapshotSeq() {
        return snapshotSeq;
      },
      get appliedSeqs() {
        return [...appliedSeqs];
      },
      get views() {
        return [...views];
      },
    });
    Object.defineProperty(window, "__threadline", { value: view, writable: false });
  },

  reset(id: string | null, seq: number): void {
    sessionId = id;
    snapshotSeq = seq;
    appliedSeqs = [];
    views = [];
  },

  event(seq: number): void {
    push(appliedSeqs, seq);
  },

  view(seq: number): void {
    push(views, seq);
  },
};

function push(list: number[], seq: number): void {
  list.push(seq);
  if (list.length > cap) list.splice(0, list.length - cap);
}
