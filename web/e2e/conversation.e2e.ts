import type { Locator, Page } from "@playwright/test";
import { expectAccessible } from "./support/axe";
import { Log, png } from "./support/logs";
import type { Place } from "./support/server";
import { words } from "./support/strict";
import { expect, picture, test } from "./support/test";
import type { Threadline } from "./support/threadline";

const unified = [
  "replaced 1 time in `src/clock.ts`",
  "--- a/src/clock.ts",
  "+++ b/src/clock.ts",
  "@@ -10,7 +10,8 @@ export function clock(at: number): string {",
  "   const date = new Date(at);",
  "-  return `${date.getHours()}:${date.getMinutes()}`;",
  "+  const minutes = String(date.getMinutes()).padStart(2, \"0\");",
  "+  return `${date.getHours()}:${minutes}`;",
  " }",
  " ",
  " export function day(at: number): string {",
].join("\n");

const answer = [
  "The clock dropped a zero in front of single minutes. I **padded** them:",
  "",
  "```ts",
  "// Minutes always have two digits.",
  'export const two = (value: number): string => String(value).padStart(2, "0");',
  "```",
  "",
  "1. `clock` is fixed, and its test passes.",
  "2. See [the documentation](https://example.com/docs) for `padStart`.",
  "",
  "| case | before | after |",
  "|---|---|---|",
  "| 9:05 | `9:5` | `9:05` |",
].join("\n");

/** One of everything that a conversation can show. */
function everything(place: Place): Log {
  const log = new Log(place);
  const picture_ = log.blob(png);
  log.open("", [
    { type: "text", text: "The clock shows 9:5 instead of 9:05, see the picture. Mend it." },
    { type: "image", mediaType: "image/png", blob: picture_ },
    { type: "image", mediaType: "image/svg+xml", blob: picture_ },
  ]);
  log.event("system/prompt", { text: "Be brief.", tools: [{ name: "shell", description: "", parameters: {} }], reason: "initial" });
  log.event("user/message", { content: [{ type: "text", text: "Working directory: /work\nDate: 2026-11-30" }], source: "context" });
  log.say([{ type: "reasoning", text: "The minutes are not padded. ".repeat(30) }, { type: "tool_call", callId: "a", name: "shell", arguments: '{"command":"npm test -- clock"}' }]);
  log.event("tool/start", { callId: "a", name: "shell", cwd: place.cwd });
  const printed = "\\x1b[1m FAIL \\x1b[0m clock.test.ts\n\\x1b[31m- 9:5\\x1b[0m\n\\x1b[32m+ 9:05\\x1b[0m\n\\x1b[33;44m 1 failed \\x1b[0m\n[exit code 1]";
  log.event("tool/result", { callId: "a", name: "shell", content: [{ type: "text", text: printed }], isError: true, outcome: "error" });
  log.endStep();
  log.call("edit", { path: "src/clock.ts", old_string: "x", new_string: "y" }, unified);
  const whole = `${Array.from({ length: 3000 }, (_, at) => `line ${at}`).join("\n")}\n`;
  const blob = log.blob(Buffer.from(whole));
  log.call("shell", { command: "seq 3000" }, "line 0\nline 1\n[... 30000 bytes of output left out here ...]\nline 2999\n[exit code 0]", { full: { blob } });
  log.call("agent", { task: "look at the tests" }, "They pass.\n[the subagent is done; its session is 0199a8c2-5c00-7000-8000-0000000000ff, and `resume` goes on with it]");
  log.answer(answer);
  log.close();
  log.open("Now do the same for the days.");
  log.event("compaction/summary", {
    summary: [{ type: "text", text: "The clock was mended: minutes are padded." }],
    replaces: { fromSeq: 1, toSeq: 8 },
    kept: [],
    tokensBefore: 128_400,
    tokensAfter: 9_210,
    algorithm: "e2e",
  });
  log.event("model/retry", { attempt: 1, status: 529, message: "overloaded", delayMs: 2000 });
  log.event("item/rejected", { model: { provider: "offline", name: "demonstration" }, part: "images", blobs: [picture_], message: "this model takes no pictures" });
  log.call("write", { path: "notes.md", content: "# Days\n\nThey are padded too.\n" }, "wrote 30 bytes to the new file `notes.md`");
  log.say([
    { type: "text", text: "Two commands are left." },
    { type: "tool_call", callId: "u", name: "shell", arguments: '{"command":"./deploy.sh production"}' },
    { type: "tool_call", callId: "n", name: "shell", arguments: '{"command":"./notify.sh"}' },
  ]);
  log.event("tool/start", { callId: "u", name: "shell", cwd: place.cwd });
  log.event("tool/output", { callId: "u", stream: "stdout", delta: "uploading 3 of 7\n" });
  return log;
}

async function open(app: Threadline, id: string): Promise<void> {
  await app.page.goto(`${app.server.origin}/#/session/${id}`);
  await app.page.reload();
  await app.live(id);
}

/** Scrolls the conversation until something is in the frame. */
async function reveal(page: Page, what: Locator): Promise<void> {
  await expect(async () => {
    if ((await what.count()) === 0) await page.getByTestId("turns").evaluate((frame) => frame.scrollBy(0, -300));
    expect(await what.count()).toBeGreaterThan(0);
    await what.first().scrollIntoViewIfNeeded({ timeout: 500 });
  }).toPass({ timeout: 15_000 });
}

test("a turn that was cut off says what is known of its calls, and a click has it checked", async ({ place, app, page }) => {
  const log = everything(place);
  await open(app, log.write());
  const unknown = app.card("u");
  await expect(unknown).toHaveAttribute("data-state", "unknown");
  await expect(unknown).toContainText("Outcome unknown");
  await expect(unknown.getByLabel("Output before it was cut off")).toHaveText("uploading 3 of 7");
  await expect(app.card("n")).toHaveAttribute("data-state", "not_started");
  await expect(app.card("n")).toContainText("Nothing was executed.");
  await expect(app.card("n").getByTestId("check-call")).toHaveCount(0);
  await picture(page, "cut-off");
  await expectAccessible(page);

  await app.byId("composer").fill("a draft");
  await unknown.getByTestId("check-call").click();
  await app.ended(3);
  await expect(app.turn(3).getByTestId("item-user").last()).toContainText("Check what it did, without changing anything");
  await expect(app.turn(3).getByTestId("item-user").last()).toContainText("./deploy.sh production");
  // What was being typed is still there, and an older turn offers nothing any more.
  await expect(app.byId("composer")).toHaveValue("a draft");
  await reveal(page, unknown);
  await expect(unknown.getByTestId("check-call")).toHaveCount(0);
});

test("a call that was never started is made again with a click", async ({ place, app }) => {
  await open(app, everything(place).write());
  await app.card("n").getByTestId("retry-call").click();
  await app.ended(3);
  await expect(app.turn(3).getByTestId("item-user").last()).toContainText("was never started");
});

test("differences have signs, and long ones open", async ({ place, app, page }) => {
  const log = new Log(place);
  const content = Array.from({ length: 60 }, (_, at) => `row ${at}`).join("\n");
  log.open("write").call("edit", { path: "src/clock.ts", old_string: "x", new_string: "y" }, unified);
  log.call("write", { path: "rows.txt", content }, "wrote 500 bytes to the new file `rows.txt`");
  await open(app, log.close().write());
  const [edit, write] = [app.byId("diff").nth(0), app.byId("diff").nth(1)];
  await expect(edit.locator('[data-kind="del"]')).toHaveCount(1);
  await expect(edit.locator('[data-kind="del"] .diff-sign')).toHaveText("-");
  await expect(edit.locator('[data-kind="add"]')).toHaveCount(2);
  await expect(edit).toContainText("src/clock.ts");
  await expect(write.locator('[data-kind="add"]')).toHaveCount(24);
  await write.getByRole("button", { name: "Show all (36 more lines)" }).click();
  await expect(write.locator('[data-kind="add"]')).toHaveCount(60);
  await picture(page, "diffs");
});

test("terminal output has its colours, its end, and all of it on demand", async ({ place, app, page }) => {
  const log = new Log(place);
  const printed = "\\x1b[1;31mFAIL\\x1b[0m a.test.ts\n\u001b[32mok\u001b[0m \u001b]0;title\u0007\n[exit code 1]";
  log.open("run").call("shell", { command: "npm test" }, printed, { isError: true, outcome: "error" });
  const lines = Array.from({ length: 20_000 }, (_, at) => `line ${at}`);
  const blob = log.blob(Buffer.from(`${lines.join("\n")}\n`));
  log.call("shell", { command: "seq" }, "line 0\n[... left out ...]\nline 19999\n[exit code 0]", { full: { blob } });
  await open(app, log.close().write());

  const first = app.byId("tool-card").nth(0);
  await expect(first.locator(".ansi-1.ansi-bold")).toHaveText("FAIL");
  await expect(first.locator(".ansi-2")).toHaveText("ok");
  await expect(first).toContainText("\\u001b]0;title\\u0007");
  await expect(first.locator('.exit-note[data-ok="false"]')).toHaveText("exit code 1");
  await first.getByRole("button", { name: "Exact text" }).click();
  await expect(first).toContainText("\\x1b[1;31mFAIL");

  const second = app.byId("tool-card").nth(1);
  await expect(second.locator('.exit-note[data-ok="true"]')).toHaveText("exit code 0");
  await second.getByRole("button", { name: "Show all of the output" }).click();
  await expect(second.getByTestId("viewer")).toHaveAttribute("data-phase", "ready");
  await expect(second).toContainText("20,000 rows");
  const frame = second.locator(".viewer-scroll");
  await expect(frame).toContainText("line 3");
  expect(await second.locator(".viewer-row").count()).toBeLessThan(100);
  await frame.evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await expect(frame).toContainText("line 19999");
  expect(await second.locator(".viewer-row").count()).toBeLessThan(100);
  await picture(page, "viewer");
  await second.getByRole("button", { name: "Show less" }).click();
  await expect(second.getByTestId("viewer")).toHaveCount(0);
});

test("a whole output that is gone says so, and can be asked for again", async ({ place, app }) => {
  const log = new Log(place);
  log.open("run").call("shell", { command: "seq" }, "x\n[exit code 0]", { full: { blob: "0".repeat(64) } });
  await open(app, log.close().write());
  await app.byId("tool-card").getByRole("button", { name: "Show all of the output" }).click();
  await expect(app.byId("viewer").getByTestId("error-banner")).toBeVisible();
  await expect(app.byId("viewer").getByRole("button", { name: "Try again" })).toBeVisible();
});

test("pictures are shown, grow with a click, and a document that calls itself one is not", async ({ place, app, page }) => {
  const log = new Log(place);
  const blob = log.blob(png);
  log.open("", [
    { type: "text", text: "see" },
    { type: "image", mediaType: "image/png", blob },
    { type: "image", mediaType: "image/svg+xml", blob },
    { type: "image", mediaType: "image/png", blob: "0".repeat(64) },
  ]);
  await open(app, log.close().write());
  const image = page.getByAltText("Image 1 of 3 in the message");
  await expect.poll(() => image.evaluate((element: HTMLImageElement) => element.naturalWidth)).toBe(64);
  await expect(app.byId("image-gone")).toHaveText([/of the kind image\/svg\+xml, is not shown/, /is gone or damaged/]);
  await page.getByRole("button", { name: "Enlarge: Image 1 of 3 in the message" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
});

test("a compaction is a seam that leads to the originals", async ({ place, app, page }) => {
  await open(app, everything(place).write());
  const seam = app.byId("compaction");
  await reveal(page, seam);
  await expect(seam).toContainText("128,400 tokens");
  await expect(seam).toContainText("9,210 tokens");
  await seam.getByText("What the model knows of it").click();
  await expect(seam).toContainText("The clock was mended");
  // Nobody touched a wheel or a key on the way here; what is read stays all the same.
  await expect(seam).toBeInViewport();
  await expect(app.byId("notice").first()).toContainText("status 529");
  await expect(app.page.locator('[data-testid="notice"][data-type="item/rejected"]')).toContainText("takes no pictures");
  await picture(page, "seam");
  await expectAccessible(page);
  await seam.getByTestId("originals").click();
  await expect(app.page.locator(".row[data-sought]")).toContainText("The clock shows 9:5");
});

test("code has colours and can be copied; reasoning stays folded until it is opened", async ({ place, app, page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await open(app, everything(place).write());
  const block = page.locator(".code-block");
  await reveal(page, block);
  await expect(block.locator(".hl-keyword").first()).toHaveText("export");
  await block.getByRole("button", { name: "Copy code" }).click();
  await expect(block).toContainText("Copied");
  expect(await page.evaluate(() => navigator.clipboard.readText())).toContain("export const two");
  const link = page.getByRole("link", { name: /the documentation/ });
  await expect(link).toContainText("(example.com)");
  await picture(page, "answer");

  const thought = page.locator(".thought");
  await reveal(page, thought);
  await expect(thought).toContainText("150 words");
  await expect(thought.getByLabel("Reasoning")).toHaveCount(0);
  await thought.getByText("Reasoning").click();
  await expect(thought.getByLabel("Reasoning")).toContainText("The minutes are not padded.");
});

test("a subagent's call leads to its session", async ({ place, app, page }) => {
  const child = new Log(place, "0199a8c2-5c00-7000-8000-0000000000ff");
  child.open("look at the tests").answer("They pass.");
  child.close().write();
  await open(app, everything(place).write());
  await reveal(page, app.byId("open-child"));
  await app.byId("open-child").click();
  await app.live(child.id);
  await expect(app.turn(1)).toContainText("They pass.");
  await page.goBack();
  await app.live("0199a8c2-5c00-7000-8000-000000000001");
});

test("turns fold, and keys move between them", async ({ place, app, page }) => {
  const log = new Log(place);
  for (let at = 1; at <= 30; at++) {
    log.open(`question ${at}`).call("shell", { command: "true" }, "[no output]\n[exit code 0]");
    log.answer(`answer ${at}`).close();
  }
  await open(app, log.write());
  await app.byId("turns").focus();
  const heads = page.locator(".turn-header");
  await expect(heads.last()).toBeInViewport();
  await page.keyboard.press("Home");
  await expect(app.turn(1)).toBeInViewport();
  for (let at = 0; at < 3; at++) await page.keyboard.press("j");
  await expect(app.turn(4).locator(".turn-header")).toBeInViewport();
  await page.keyboard.press("k");
  await expect(app.turn(3).locator(".turn-header")).toBeInViewport();
  await expect(app.turn(3).getByTestId("tool-card")).toHaveCount(1);
  await page.keyboard.press("f");
  await expect(app.turn(3).getByTestId("tool-card")).toHaveCount(0);
  await expect(app.turn(3)).toContainText("question 3");
  await expect(app.turn(3)).toContainText("answer 3");
  await app.turn(3).getByRole("button", { name: /more item/ }).click();
  await expect(app.turn(3).getByTestId("tool-card")).toHaveCount(1);
  await page.keyboard.press("End");
  await expect(app.byId("jump")).toHaveCount(0);
  await expect(app.turn(30)).toContainText("answer 30");
});

test("a stream moves nothing that is being read, and stays in sight of who is at the end", async ({ strict, strictApp: app, page }) => {
  const paragraph = (at: number): string => `Paragraph ${at}: ${words(1, 60)}\n\n`;
  const code = "```js\nconst a = 1;\n```\n\n";
  await strict.script({
    when: { user: "write" },
    steps: [
      { text: paragraph(1) + code },
      { gate: "one" },
      ...Array.from({ length: 12 }, (_, at) => ({ text: paragraph(at + 2) + code })),
      { gate: "two" },
      ...Array.from({ length: 6 }, (_, at) => ({ text: paragraph(at + 20) })),
    ],
  });
  await app.send("write");
  await strict.reached("one");
  await expect(app.turn(1)).toContainText("Paragraph 1:");
  await page.evaluate(() => {
    const shifts: number[] = [];
    Object.assign(window, { shifts });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) shifts.push((entry as unknown as { value: number }).value);
    }).observe({ type: "layout-shift", buffered: false });
  });
  await strict.open("one");
  await strict.reached("two");
  await expect(app.turn(1)).toContainText("Paragraph 13:");
  const frame = app.byId("turns");
  const distance = (): Promise<number> =>
    frame.evaluate((element) => element.scrollHeight - element.scrollTop - element.clientHeight);
  await expect.poll(distance).toBeLessThan(60);
  await expect(app.byId("jump")).toHaveCount(0);

  await frame.hover();
  await page.mouse.wheel(0, -900);
  await expect(app.byId("jump")).toBeVisible();
  const place = app.turn(1).getByText("Paragraph 10:");
  await expect(place).toBeVisible();
  // The wheel is still turning for a moment; then nothing moves.
  let before = await place.boundingBox();
  await expect(async () => {
    const now = await place.boundingBox();
    const still = now?.y === before?.y;
    before = now;
    expect(still).toBe(true);
  }).toPass();
  await strict.open("two");
  await app.ended(1);
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  expect((await place.boundingBox())?.y).toBeCloseTo(before?.y ?? -1, 0);
  const shifts = await page.evaluate(() => (window as unknown as { shifts: number[] }).shifts);
  expect(shifts.reduce((sum, value) => sum + value, 0)).toBeLessThan(0.01);
  await app.byId("jump").click();
  await expect(app.turn(1)).toContainText("Paragraph 25:");
  await expect.poll(distance).toBeLessThan(60);
});
