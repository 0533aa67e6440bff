import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import type { ToolItem } from "../src/api/types";
import { Markdown } from "../src/components/Markdown";
import { ToolCard } from "../src/components/ToolCard";

const markdown = (text: string): string => renderToStaticMarkup(<Markdown text={text} />);

describe("Markdown from a model", () => {
  it("shows HTML as text", () => {
    const html = markdown("<img src=x onerror=alert(1)> <script>alert(1)</script>\n\n<iframe src=x></iframe>");
    expect(html).not.toMatch(/<(img|script|iframe)/);
    expect(html).toContain("&lt;img");
  });

  it("drops links that run code or lead into the page, and keeps their words", () => {
    for (const url of ["javascript:alert(1)", "data:text/html,x", "/api/agent/config", "#/session/1"]) {
      const html = markdown(`[click](${url})`);
      expect(html).not.toContain("<a ");
      expect(html).toContain("click");
    }
  });

  it("marks links and separates them from this page", () => {
    const html = markdown("[a](https://example.com)");
    expect(html).toContain('rel="noopener noreferrer nofollow"');
    expect(html).toContain('target="_blank"');
  });

  it("loads no image from anywhere", () => {
    const html = markdown("![secret](https://example.com/p.png) ![x](javascript:1)");
    expect(html).not.toContain("<img");
    expect(html).toContain("Image: secret");
  });

  it("renders tables and task lists", () => {
    expect(markdown("|a|b|\n|-|-|\n|1|2|")).toContain("<table>");
    expect(markdown("- [x] done")).toContain('type="checkbox"');
  });
});

const call: ToolItem = {
  kind: "tool",
  id: "t",
  seq: 1,
  step: 1,
  callId: "call_1",
  name: "shell",
  arguments: '{"command":"ls"}',
  startSeq: 1,
  resultSeq: 2,
  startedAt: 1,
  endedAt: 2,
  outcome: "ok",
  isError: false,
  content: [{ type: "text", text: "<b>out</b>" }],
  output: "",
  synthetic: false,
  approval: null,
};

const card = (over: Partial<ToolItem>, live = false): string =>
  renderToStaticMarkup(<ToolCard item={{ ...call, ...over }} runId="r" live={live} />);

describe("ToolCard", () => {
  it("tells the two kinds of interrupted calls apart in words", () => {
    expect(card({ outcome: "unknown", synthetic: true })).toContain("Outcome unknown: check before retrying");
    expect(card({ outcome: "not_started", synthetic: true })).toContain("Never started: safe to retry");
  });

  it("shows what was printed before the cut", () => {
    expect(card({ outcome: "unknown", synthetic: true, output: "half" })).toContain("half");
  });

  it("escapes output and exposes its hooks", () => {
    const html = card({});
    expect(html).toContain("&lt;b&gt;out&lt;/b&gt;");
    expect(html).toContain('data-call-id="call_1"');
    expect(html).toContain('data-outcome="ok"');
  });

  const asked = { approvalId: "a", reason: "deletes files", decision: null, by: null };

  it("asks only while the turn is live", () => {
    const open: Partial<ToolItem> = { outcome: null, resultSeq: null, startSeq: null, approval: asked };
    expect(card(open, true)).toContain('data-testid="approve-session"');
    expect(card(open, false)).not.toContain('data-testid="approve"');
  });
});
