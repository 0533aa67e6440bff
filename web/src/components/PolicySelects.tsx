import type { ApprovalPolicy, SandboxMode, ServerConfig } from "../api/types";
import { useApp } from "../state/app";
import { useStore } from "../state/store";

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
        <Options options={approvals} ceiling={config?.ceiling.approvalPolicy} />
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
        <Options options={sandboxes} ceiling={config?.ceiling.sandboxMode} />
      </select>
    </>
  );
}

/** What holds when nothing is chosen: the continued session's own policy, else the defaults. */
function useInherited(config: ServerConfig | null): {
  approval: string | undefined;
  sandbox: string | undefined;
} {
  const app = useApp();
  const { continuing } = useStore(app.router.state);
  const view = useStore(app.view.state);
  if (continuing !== null) {
    const context = continuing === view.id ? view.model.turns.at(-1)?.context : undefined;
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
  options: readonly { value: string; label: string }[];
  ceiling: string | undefined;
}

function Options({ options, ceiling }: OptionsProps) {
  const limit = options.findIndex((option) => option.value === ceiling);
  return options.map((option, index) => (
    <option key={option.value} value={option.value} disabled={limit >= 0 && index > limit}>
      {option.label}
    </option>
  ));
}
