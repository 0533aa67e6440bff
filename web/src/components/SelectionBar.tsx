import { useState } from "react";
import { toHuman } from "../api/problem";
import { plural } from "../model/format";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon } from "./Icon";

/** What can be done with several sessions at once. */
export function SelectionBar() {
  const app = useApp();
  const picked = useStore(app.selection.ids);
  const { query } = useStore(app.list.state);
  const [failed, setFailed] = useState<string | null>(null);
  if (picked.size === 0) return null;
  const restoring = query.archived === "true";
  const archive = async (): Promise<void> => {
    setFailed(null);
    const problems: string[] = [];
    for (const session of app.list.loaded()) {
      if (!picked.has(session.id)) continue;
      try {
        await app.update(session, { archived: !restoring });
      } catch (error) {
        problems.push(toHuman(error).message);
      }
    }
    if (problems.length > 0) setFailed(`${plural(problems.length, "session")} did not change: ${problems[0]}`);
    else app.selection.clear();
  };
  return (
    <div className="selection-bar" role="toolbar" aria-label="Picked sessions" data-testid="selection">
      <strong>{picked.size} picked</strong>
      <button type="button" className="button small" onClick={() => void archive()}>
        {restoring ? "Restore" : "Archive"}
      </button>
      <button
        type="button"
        className="button small danger"
        onClick={() => app.requestDeletion([...picked], plural(picked.size, "session"))}
      >
        Delete
      </button>
      <button type="button" className="icon-button" aria-label="Pick none" onClick={() => app.selection.clear()}>
        <Icon name="cross" />
      </button>
      {failed !== null && (
        <p className="row-reason" role="alert">
          {failed}
        </p>
      )}
    </div>
  );
}
