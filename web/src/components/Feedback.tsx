import type { ReactNode } from "react";
import type { HumanError } from "../api/problem";
import { Icon, type IconName } from "./Icon";

interface ErrorBannerProps {
  error: HumanError;
  onDismiss?: () => void;
  onRetry?: () => void;
  children?: ReactNode;
}

export function ErrorBanner({ error, onDismiss, onRetry, children }: ErrorBannerProps) {
  return (
    <div className="error-banner" role="alert" data-testid="error-banner" data-code={error.code}>
      <Icon name="warning" />
      <div className="error-text">
        <strong>{error.message}</strong>
        {error.hint !== undefined && <span>{error.hint}</span>}
        {children}
      </div>
      {onRetry !== undefined && (
        <button type="button" className="button small" onClick={onRetry}>
          Try again
        </button>
      )}
      {onDismiss !== undefined && (
        <button type="button" className="icon-button" aria-label="Dismiss" onClick={onDismiss}>
          <Icon name="cross" />
        </button>
      )}
    </div>
  );
}

const statusText: Record<string, string> = {
  idle: "Idle",
  running: "Running",
  waiting: "Needs approval",
  interrupted: "Interrupted",
  damaged: "Damaged",
  missing: "Missing",
  unsupported: "Unsupported",
  completed: "Completed",
  cancelled: "Stopped",
  blocked: "Blocked",
  error: "Failed",
  max_steps: "Step limit reached",
  max_tokens: "Token limit reached",
  limit: "Limit reached",
};

export function statusLabel(status: string): string {
  return statusText[status] ?? status;
}

/** What asks for attention has a shape of its own, not only a colour. */
const statusIcon: Record<string, IconName> = {
  waiting: "hand",
  interrupted: "warning",
  damaged: "cross",
  missing: "cross",
  unsupported: "cross",
  error: "cross",
  blocked: "cross",
};

export function Status({ status }: { status: string }) {
  const icon = statusIcon[status];
  return (
    <span className="status" data-status={status}>
      {icon === undefined ? <span className="status-dot" aria-hidden="true" /> : <Icon name={icon} />}
      {statusLabel(status)}
    </span>
  );
}
