import { useId } from "react";
import type { ApprovalPolicy, SandboxMode, ServerConfig, TurnContext } from "../api/types";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon } from "./Icon";

/** From narrow to wide: the server's ceiling cuts the list at its end. */
const approvals: readonly { value: ApprovalPolicy; label: string }[] = [
  { value: "strict", label: "Ask always" },
  { value: "on_request", label: "Ask if needed" },
  { value: "never", label: "Never ask" },
];

const sandboxes: readonly { value: SandboxMode; label: string }[] = [
  { value: "read_only", label: "Read only" },
  { value: "workspace_write", label: "Write workspace" },
  { value: "danger_full_access", label: "Full access, danger" },
];

export function PolicySelects() {
  const app = useApp();
  const { config } = useStore(app.server);
  const { approvalPolicy, sandboxMode } = useStore(app.composer.state);
  const inherited = useInherited(config);
  const { continuing } = useStore(app.router.state);
  const origin = continuing === null ? "default" : "as before";
  return (
    <>
      <ModelField />
      <select
        className="policy"
        aria-label="Approval policy"
        title="When the agent asks before it runs a tool"
        data-testid="approval-policy"
        value={approvalPolicy}
        onChange={(event) =>
          app.composer.choose({ approvalPolicy: event.target.value as ApprovalPolicy | "" })
        }
      >
        <option value="">{inheritedLabel("Approval", inherited.approval, approvals, origin)}</option>
        <Choices options={approvals} ceiling={config?.ceiling.approvalPolicy} />
      </select>
      <select
        className="policy"
        aria-label="Sandbox"
        title="What the agent's tools may touch"
        data-testid="sandbox-mode"
        data-danger={sandboxMode === "danger_full_access"}
        value={sandboxMode}
        onChange={(event) => app.composer.choose({ sandboxMode: event.target.value as SandboxMode | "" })}
      >
        <option value="">{inheritedLabel("Sandbox", inherited.sandbox, sandboxes, origin)}</option>
        <Choices options={sandboxes} ceiling={config?.ceiling.sandboxMode} />
      </select>
    </>
  );
}

/** The model of the next turn: empty for what the session has used last. */
function ModelField() {
  const app = useApp();
  const { config } = useStore(app.server);
  const { model } = useStore(app.composer.state);
  const { context } = useContinued();
  const { continuing } = useStore(app.router.state);
  const list = useId();
  const used = continuing === null ? config?.model : context?.model;
  const known = new Set<string>();
  if (config !== null) known.add(`${config.provider}/${config.model}`);
  for (const { model: other } of app.list.loaded()) {
    if (other !== null) known.add(`${other.provider}/${other.name}`);
  }
  const label = used === undefined ? "Model: as before" : used;
  return (
    <>
      <input
        className="policy model-field"
        aria-label="Model"
        title={`Model of the next turn. Now: ${label}${config === null ? "" : `. Providers: ${(config.providers ?? [config.provider]).join(", ")}`}`}
        data-testid="model"
        list={list}
        placeholder={label}
        maxLength={200}
        size={Math.min(24, Math.max(8, (model || label).length))}
        value={model}
        onChange={(event) => app.composer.choose({ model: event.target.value })}
      />
      <datalist id={list}>
        {[...known].map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </>
  );
}

/** What the session that is continued ran under last. */
function useContinued(): { context: TurnContext | undefined } {
  const app = useApp();
  const { continuing } = useStore(app.router.state);
  const view = useStore(app.view.state);
  const same = continuing !== null && continuing === view.id;
  return { context: (same ? view.model.turns.at(-1)?.context : null) ?? undefined };
}

/** Says in words that the next turn may do more than what held before. */
export function Widening() {
  const app = useApp();
  const { config } = useStore(app.server);
  const { approvalPolicy, sandboxMode } = useStore(app.composer.state);
  const { continuing } = useStore(app.router.state);
  const inherited = useInherited(config);
  const wider = [
    widened(approvals, inherited.approval, approvalPolicy),
    widened(sandboxes, inherited.sandbox, sandboxMode),
  ].filter((text) => text !== null);
  if (wider.length === 0) return null;
  return (
    <p className="widening" role="status" data-testid="widening">
      <Icon name="warning" />
      {continuing === null ? "This session" : "From the next turn on this session"} may do more than{" "}
      {continuing === null ? "by default" : "before"}: {wider.join("; ")}. It is written to the log.
    </p>
  );
}

type Options = readonly { value: string; label: string }[];

export function widened(options: Options, before: string | undefined, chosen: string): string | null {
  const from = options.findIndex((option) => option.value === before);
  const to = options.findIndex((option) => option.value === chosen);
  if (chosen === "" || from < 0 || to <= from) return null;
  return `${options[from]?.label} becomes ${options[to]?.label}`;
}

/** What holds when nothing is chosen: the continued session's own policy, else the defaults. */
function useInherited(config: ServerConfig | null): {
  approval: string | undefined;
  sandbox: string | undefined;
} {
  const app = useApp();
  const { continuing } = useStore(app.router.state);
  const { context } = useContinued();
  if (continuing !== null) {
    return { approval: context?.approvalPolicy, sandbox: context?.sandboxMode };
  }
  return { approval: config?.defaults.approvalPolicy, sandbox: config?.defaults.sandboxMode };
}

function inheritedLabel(
  name: string,
  value: string | undefined,
  options: readonly { value: string; label: string }[],
  origin: string,
): string {
  const label = options.find((option) => option.value === value)?.label;
  return label === undefined ? `${name}: ${origin}` : `${label} (${origin})`;
}

interface OptionsProps {
  options: Options;
  ceiling: string | undefined;
}

function Choices({ options, ceiling }: OptionsProps) {
  const limit = options.findIndex((option) => option.value === ceiling);
  return options.map((option, index) => (
    <option key={option.value} value={option.value} disabled={limit >= 0 && index > limit}>
      {option.label}
    </option>
  ));
}
