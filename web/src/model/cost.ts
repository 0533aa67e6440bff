/** What tokens cost, by the prices of the server: the same sum as that of its limits. */

import type { Price, ServerConfig, Usage } from "../api/types";
import { plural } from "./format";

export type Prices = ServerConfig["prices"];
export type Limits = ServerConfig["limits"];

/** What a million tokens of a model cost; null when nobody has said. */
export function priceOf(prices: Prices | undefined, model: { provider: string; name: string } | null): Price | null {
  if (prices === undefined || model === null) return null;
  for (const name of [`${model.provider}/${model.name}`, model.provider]) {
    if (Object.hasOwn(prices, name)) return prices[name] ?? null;
  }
  return null;
}

export function costOf(price: Price, ...used: (Usage | undefined)[]): number {
  let sum = 0;
  for (const usage of used) {
    if (usage === undefined) continue;
    const cached = Math.min(usage.cachedInputTokens ?? 0, usage.inputTokens);
    const fresh = usage.inputTokens - cached;
    sum += fresh * price.input + cached * price.cachedInput + usage.outputTokens * price.output;
  }
  return sum / 1e6;
}

/** A cost without a unit: prices have that of whoever wrote them down. */
export function costText(cost: number): string {
  if (cost === 0) return "0";
  if (cost < 0.0001) return "< 0.0001";
  if (cost < 1) return String(Number(cost.toFixed(4)));
  return cost.toFixed(2);
}

export function isUsed(usage: Usage | undefined): usage is Usage {
  return usage !== undefined && usage.inputTokens + usage.outputTokens > 0;
}

/** Everything about some tokens in words. */
export function usageText(usage: Usage): string {
  const cached = usage.cachedInputTokens ?? 0;
  const reasoned = usage.reasoningTokens ?? 0;
  const parts = [
    `${usage.inputTokens.toLocaleString("en")} tokens read`,
    cached > 0 ? `${cached.toLocaleString("en")} of them from the provider's cache` : null,
    `${usage.outputTokens.toLocaleString("en")} written`,
    reasoned > 0 ? `${reasoned.toLocaleString("en")} of them reasoning` : null,
  ];
  return parts.filter((part) => part !== null).join(", ");
}

/** The limits that the server has, in words: those of each run, then those of a session. */
export function limitTexts(limits: Limits): { run: string[]; session: string[] } {
  const of = (
    steps: number | null,
    seconds: number | null,
    all: number | null,
    cost: number | null,
  ): string[] =>
    [
      steps === null ? null : plural(steps, "step"),
      seconds === null ? null : `${seconds.toLocaleString("en")} s`,
      all === null ? null : `${all.toLocaleString("en")} tokens`,
      cost === null ? null : `a cost of ${costText(cost)}`,
    ].filter((text) => text !== null);
  return {
    run: of(limits.maxSteps, limits.maxSeconds, limits.maxTokens, limits.maxCost),
    session: of(limits.maxSessionSteps, limits.maxSessionSeconds, limits.maxSessionTokens, limits.maxSessionCost),
  };
}

