import type { ArchivedFilter } from "../api/client";
import type { SessionStatus } from "../api/types";
import { revealControls } from "../model/text";
import { useApp } from "../state/app";
import { everything, isTree } from "../state/sessionList";
import { useStore } from "../state/store";
import { statusLabel } from "./Feedback";

const statuses: readonly SessionStatus[] = [
  "running",
  "waiting",
  "interrupted",
  "idle",
  "damaged",
  "unsupported",
  "missing",
];

export function ListFilters() {
  const { list, server } = useApp();
  const { query } = useStore(list.state);
  const { config } = useStore(server);
  const folders = new Set(list.loaded().map((session) => session.cwd));
  if (config !== null) folders.add(config.cwd);
  if (query.cwd !== "") folders.add(query.cwd);
  folders.delete("");
  const models = new Set(list.loaded().flatMap(({ model }) => (model === null ? [] : [nameOf(model)])));
  if (config !== null) models.add(`${config.provider}/${config.model}`);
  if (query.model !== "") models.add(query.model);
  return (
    <div className="filters" role="group" aria-label="Filters">
      <select
        aria-label="Status"
        data-testid="filter-status"
        data-set={query.status !== ""}
        value={query.status}
        onChange={(event) => void list.search({ status: event.target.value as SessionStatus | "" })}
      >
        <option value="">Status</option>
        {statuses.map((status) => (
          <option key={status} value={status}>
            {statusLabel(status)}
          </option>
        ))}
      </select>
      <select
        aria-label="Folder"
        data-testid="filter-folder"
        data-set={query.cwd !== ""}
        value={query.cwd}
        onChange={(event) => void list.search({ cwd: event.target.value })}
      >
        <option value="">Folder</option>
        {[...folders].sort().map((folder) => (
          <option key={folder} value={folder}>
            {folderLabel(folder, config?.cwd)}
          </option>
        ))}
      </select>
      <select
        aria-label="Model"
        data-testid="filter-model"
        data-set={query.model !== ""}
        value={query.model}
        onChange={(event) => void list.search({ model: event.target.value })}
      >
        <option value="">Model</option>
        {[...models].sort().map((model) => (
          <option key={model} value={model}>
            {revealControls(model)}
          </option>
        ))}
      </select>
      <select
        aria-label="Which sessions to list"
        data-set={query.archived !== "false"}
        value={query.archived}
        onChange={(event) => void list.search({ archived: event.target.value as ArchivedFilter })}
      >
        <option value="false">Active</option>
        <option value="true">Archived</option>
        <option value="all">All</option>
      </select>
      <label className="tree-toggle" title={query.status === "" ? "Forks and children below what they came from" : "Not with a status: what runs or waits is shown as a list"}>
        <input
          type="checkbox"
          data-testid="as-tree"
          checked={isTree(query)}
          disabled={query.status !== ""}
          onChange={(event) => void list.search({ tree: event.target.checked ? "1" : "" })}
        />
        As a tree
      </label>
    </div>
  );
}

function nameOf(model: { provider: string; name: string }): string {
  return `${model.provider}/${model.name}`;
}

function folderLabel(folder: string, here: string | undefined): string {
  if (folder === here) return `This folder: ${folder}`;
  return folder.length > 60 ? `...${folder.slice(-57)}` : folder;
}

/** How much of the whole the list shows. */
export function ListFooter({ deleting }: { deleting: number }) {
  const { list } = useApp();
  const { shown: listed, all, query, phase, rebuilding } = useStore(list.state);
  if (phase !== "ready" || all === 0) return null;
  const shown = Math.max(0, listed - deleting);
  const hidden = Math.max(0, all - listed);
  const filtered = [query.query, query.status, query.cwd, query.model].some((part) => part !== "");
  return (
    <div className="list-footer" data-testid="list-footer" role="status">
      <span>
        {shown.toLocaleString("en")} {shown === 1 ? "session" : "sessions"}
      </span>
      {hidden > 0 && (
        <>
          <span data-testid="hidden-count">
            {hidden.toLocaleString("en")} {filtered ? "hidden by filter" : query.archived === "true" ? "not archived" : "archived"}
          </span>
          <button
            type="button"
            className="link-button"
            onClick={() => void list.search({ ...everything, archived: "all", tree: query.tree })}
          >
            Show all
          </button>
        </>
      )}
      {rebuilding && <span>The list is being made anew and may lack some.</span>}
    </div>
  );
}
