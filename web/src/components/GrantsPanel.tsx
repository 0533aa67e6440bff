import { useCallback, useEffect, useId, useRef, useState, type FormEvent } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Grant } from "../api/types";
import { revealControls } from "../model/text";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";

interface GrantsProps {
  id: string;
  /** Changes when the session may have other grants than before. */
  version: string;
}

/** What is approved for the rest of a session: a button in the header that opens a small panel. */
export function GrantsButton(props: GrantsProps) {
  const [open, setOpen] = useState(false);
  const panel = useId();
  const frame = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event: PointerEvent): void => {
      if (event.target instanceof Node && !frame.current?.contains(event.target)) setOpen(false);
    };
    // A button that was just used is disabled and has no focus, so keys arrive at the document.
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      setOpen(false);
      button.current?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", escape, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", escape, true);
    };
  }, [open]);
  return (
    <div className="grants" ref={frame}>
      <button
        type="button"
        ref={button}
        className="icon-button"
        data-testid="grants-toggle"
        aria-label="What is approved for this session"
        aria-expanded={open}
        aria-controls={open ? panel : undefined}
        title="What is approved for this session"
        onClick={() => setOpen(!open)}
      >
        <Icon name="shield" />
      </button>
      {open && <GrantsPanel {...props} panel={panel} />}
    </div>
  );
}

function GrantsPanel({ id, version, panel }: GrantsProps & { panel: string }) {
  const [grants, setGrants] = useState<Grant[] | null>(null);
  const [error, setError] = useState<HumanError | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const [words, setWords] = useState("");
  // Answers can arrive in another order than they were asked for; the newest question counts.
  const asked = useRef(0);

  const load = useCallback(async (): Promise<void> => {
    asked.current += 1;
    const mine = asked.current;
    try {
      const found = await api.grants(id);
      if (mine === asked.current) setGrants(found);
    } catch (failure) {
      if (mine === asked.current) setError(toHuman(failure));
    }
  }, [id]);

  useEffect(() => {
    void load();
    return () => {
      asked.current += 1;
    };
  }, [load, version]);

  const change = async (what: string, deed: () => Promise<void>): Promise<boolean> => {
    setBusy(what);
    setError(null);
    try {
      await deed();
      return true;
    } catch (failure) {
      setError(toHuman(failure));
      return false;
    } finally {
      setBusy(null);
      await load();
    }
  };

  const add = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (await change("add", () => api.grant(id, words.trim()))) setWords("");
  };

  return (
    <section className="grants-panel" id={panel} data-testid="grants" aria-label="Approved for this session">
      <h3>Approved for this session</h3>
      {error !== null && (
        <ErrorBanner
          error={error}
          onDismiss={() => setError(null)}
          {...(grants === null
            ? {
                onRetry: () => {
                  setError(null);
                  void load();
                },
              }
            : {})}
        />
      )}
      {grants === null && error === null && (
        <p className="quiet" role="status">
          Loading...
        </p>
      )}
      {grants?.length === 0 && <p className="quiet">Nothing. Every question is asked.</p>}
      {grants !== null && grants.length > 0 && (
        <ul>
          {grants.map((grant) => (
            <GrantRow
              key={grant.grantId}
              grant={grant}
              busy={busy !== null}
              onRevoke={() => void change(grant.grantId, () => api.revoke(id, grant.grantId))}
            />
          ))}
        </ul>
      )}
      <form onSubmit={(event) => void add(event)}>
        <input
          type="text"
          className="field"
          placeholder="cargo test"
          aria-label="Commands to approve, by the words they begin with"
          value={words}
          readOnly={busy !== null}
          onChange={(event) => setWords(event.target.value)}
        />
        <button type="submit" className="button" data-testid="grant-add" disabled={busy !== null || words.trim() === ""}>
          Approve
        </button>
      </form>
    </section>
  );
}

interface GrantRowProps {
  grant: Grant;
  busy: boolean;
  onRevoke: () => void;
}

function GrantRow({ grant, busy, onRevoke }: GrantRowProps) {
  const what = grant.kind === "commands" ? grant.prefix.join(" ") : `${grant.name} ${grant.arguments}`;
  const shown = revealControls(what);
  return (
    <li data-testid="grant">
      <div className="grant-what">
        <code title={shown}>{shown}</code>
        <span className="quiet">
          {grant.kind === "commands" ? "commands that begin so" : "this call"}, by {revealControls(grant.by)}
        </span>
      </div>
      <button
        type="button"
        className="button small"
        data-testid="grant-revoke"
        aria-label={`Revoke ${shown}`}
        disabled={busy}
        onClick={onRevoke}
      >
        Revoke
      </button>
    </li>
  );
}
