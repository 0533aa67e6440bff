import { describe, expect, it } from "vitest";
import { costOf, costText, limitTexts, priceOf } from "../src/model/cost";

const price = { input: 3, cachedInput: 0.3, output: 15 };

describe("costs", () => {
  it("has the price of a model before that of its provider, and none by chance", () => {
    const other = { input: 1, cachedInput: 1, output: 1 };
    const prices = { "p/m": price, p: other };
    expect(priceOf(prices, { provider: "p", name: "m" })).toBe(price);
    expect(priceOf(prices, { provider: "p", name: "x" })).toBe(other);
    expect(priceOf(prices, { provider: "q", name: "m" })).toBeNull();
    expect(priceOf({}, { provider: "constructor", name: "x" })).toBeNull();
    expect(priceOf(prices, null)).toBeNull();
    expect(priceOf(undefined, { provider: "p", name: "m" })).toBeNull();
  });

  it("adds up as the limits of the server do, cached tokens at their own price", () => {
    const usage = { inputTokens: 1_000_000, cachedInputTokens: 400_000, outputTokens: 100_000 };
    expect(costOf(price, usage)).toBeCloseTo(1.8 + 0.12 + 1.5);
    expect(costOf(price, usage, undefined, { inputTokens: 1_000_000, outputTokens: 0 })).toBeCloseTo(6.42);
    // More cached than read is a provider's slip, not a negative cost.
    expect(costOf(price, { inputTokens: 10, cachedInputTokens: 1000, outputTokens: 0 })).toBeCloseTo(3e-6);
  });

  it("is short, and never says nothing of what costs something", () => {
    expect([0, 0.00001, 0.01534, 0.5, 12.345].map(costText)).toEqual(["0", "< 0.0001", "0.0153", "0.5", "12.35"]);
  });

  it("names only the limits there are", () => {
    const none = {
      maxCost: null,
      maxSeconds: null,
      maxSessionCost: null,
      maxSessionSeconds: null,
      maxSessionSteps: null,
      maxSessionTokens: null,
      maxSteps: null,
      maxTokens: null,
    };
    expect(limitTexts(none)).toEqual({ run: [], session: [] });
    expect(limitTexts({ ...none, maxSteps: 1, maxTokens: 20_000, maxSessionCost: 2 })).toEqual({
      run: ["1 step", "20,000 tokens"],
      session: ["a cost of 2.00"],
    });
  });
});
