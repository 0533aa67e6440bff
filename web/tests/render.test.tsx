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
  full: null,
  output: "",
  synthetic: false,
  approval: null,
};

const card = (over: Partial<ToolItem>, live = false): string =>
  renderToStaticMarkup(<ToolCard item={{ ...call, ...over }} runId="r" live={live} />);

describe("what links say", () => {
  it("names the host that a link really leads to", () => {
    expect(markdown("[https://good.example/login](https://evil.example/x)")).toContain("(evil.example)");
    expect(markdown("[evil.example.good.example](https://evil.example/x)")).toContain("(evil.example)");
    expect(markdown("[https://good.example](https://good.example@evil.example/)")).toContain("(evil.example)");
    expect(markdown("<https://good.example/a>")).not.toContain("(good.example)");
  });
});

describe("what nobody can see", () => {
  it("is spelled out in what a model says, code included", () => {
    const html = markdown("a\u202eb `c\u200bd`\n\n```\ne\u2066f\n```");
    expect(html).not.toMatch(/[\u202e\u200b\u2066]/);
    for (const name of ["\\u202e", "\\u200b", "\\u2066"]) expect(html).toContain(name);
  });
});

describe("a block that is set against its reader", () => {
  it("is shown as plain text", () => {
    const html = markdown("*a".repeat(20_000));
    expect(html).toContain("unformatted");
  });
});

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

  it("shows colours, and spells out every other control of a terminal", () => {
    const text = "\\x1b[31mred\\x1b[0m \u001b[1;32mgreen\u001b[m \u001b]8;;javascript:x\u0007link \u001b[2J\n[exit code 3]";
    const html = card({ content: [{ type: "text", text }] });
    expect(html).toContain('<span class="ansi-1">red</span>');
    expect(html).toContain('<span class="ansi-2 ansi-bold">green</span>');
    expect(html).not.toMatch(/[\u001b\u0007]/);
    expect(html).toContain("\\u001b]8;;javascript:x\\u0007link");
    expect(html).toContain("exit code 3");
  });

  it("shows an edit as what was taken away and what was put there", () => {
    const result = "replaced 1 time in `a.txt`\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+<b>2</b>";
    const html = card({ name: "edit", arguments: "{}", content: [{ type: "text", text: result }] });
    expect(html).toContain('data-kind="del"');
    expect(html).toContain("removed: ");
    expect(html).toContain("&lt;b&gt;2&lt;/b&gt;");
    expect(html).toContain("replaced 1 time");
  });

  const asked = { approvalId: "a", reason: "deletes files", decision: null, by: null };

  it("asks only while the turn is live", () => {
    const open: Partial<ToolItem> = { outcome: null, resultSeq: null, startSeq: null, approval: asked };
    expect(card(open, true)).toContain('data-testid="approve-session"');
    expect(card(open, false)).not.toContain('data-testid="approve"');
  });
});
