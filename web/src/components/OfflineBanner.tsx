import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon } from "./Icon";

/** The server is out of reach. Nothing is lost; it is tried again until it answers. */
export function OfflineBanner() {
  const app = useApp();
  const reach = useStore(app.changes.reach);
  const { error } = useStore(app.server);
  // A server that refuses says why itself.
  if (reach !== "down" || (error !== null && error.code !== "unreachable")) return null;
  return (
    <div className="offline" role="status" data-testid="offline">
      <Icon name="warning" />
      <span>
        The Threadline server does not answer. What is shown is saved; the page goes on by itself as soon
        as it is back.
      </span>
      <button type="button" className="button small" onClick={() => app.retry()}>
        Try now
      </button>
    </div>
  );
}
