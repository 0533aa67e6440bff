import type { Summary, Turn } from "../api/types";
import { costOf, costText, isUsed, limitTexts, priceOf, usageText } from "../model/cost";
import { compactNumber, tokens } from "../model/format";
import { useApp } from "../state/app";
import { useStore } from "../state/store";

/** What a turn has used: tokens, those of its subagents, and what all of them cost. */
export function TurnUsage({ turn }: { turn: Turn }) {
  const app = useApp();
  const { config } = useStore(app.server);
  const { usage, subagentUsage, context } = turn;
  const model = context === null ? null : { provider: context.provider, name: context.model };
  const price = priceOf(config?.prices, model);
  const cached = usage.cachedInputTokens ?? 0;
  if (!isUsed(usage) && !isUsed(subagentUsage)) return null;
  return (
    <>
      {isUsed(usage) && (
        <span className="turn-usage" title={usageText(usage)}>
          {tokens(usage)}
          {cached > 0 && <span className="optional"> ({compactNumber(cached)} cached)</span>}
        </span>
      )}
      {isUsed(subagentUsage) && (
        <span data-testid="turn-subagents" title={`Subagents: ${usageText(subagentUsage)}`}>
          subagents {tokens(subagentUsage)}
        </span>
      )}
      {price !== null && (
        <span
          data-testid="turn-cost"
          title={`At the price of ${context?.model ?? "its model"}${isUsed(subagentUsage) ? ", subagents too" : ""}`}
        >
          cost {costText(costOf(price, usage, subagentUsage))}
        </span>
      )}
    </>
  );
}

/** The same of a whole session, for its head. */
export function SessionUsage({ summary }: { summary: Summary }) {
  const price = useSessionPrice(summary);
  return (
    <>
      <span className="optional" title={`The whole session: ${usageText(summary.usage)}`}>
        {tokens(summary.usage)}
      </span>
      {price !== null && (
        <span className="optional" data-testid="session-cost" title={costNote(summary)}>
          cost {costText(costOf(price, summary.usage, summary.subagentUsage))}
        </span>
      )}
    </>
  );
}

/** All of it with the limits that it counts for, in the session's panel. */
export function UsageFacts({ summary }: { summary: Summary }) {
  const app = useApp();
  const { config } = useStore(app.server);
  const price = useSessionPrice(summary);
  const limits = config === null ? null : limitTexts(config.limits);
  const rows: [string, string][] = [["Used", usageText(summary.usage)]];
  if (isUsed(summary.subagentUsage)) rows.push(["Subagents", usageText(summary.subagentUsage)]);
  if (summary.madeTitle !== undefined) rows.push(["Title", `${usageText(summary.madeTitle.usage)}, not counted above`]);
  if (price !== null) {
    const cost = costText(costOf(price, summary.usage, summary.subagentUsage));
    rows.push(["Cost", `${cost} (${costNote(summary)})`]);
  }
  if (limits !== null && limits.run.length > 0) rows.push(["A run may use", limits.run.join(", ")]);
  if (limits !== null && limits.session.length > 0) rows.push(["The session may use", limits.session.join(", ")]);
  return (
    <dl className="usage-facts" data-testid="usage-facts">
      {rows.map(([name, text]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
  );
}

function useSessionPrice(summary: Summary) {
  const { config } = useStore(useApp().server);
  return priceOf(config?.prices, summary.model);
}

function costNote(summary: Summary): string {
  return `as if all had been spent on ${summary.model?.name ?? "its model"}`;
}
