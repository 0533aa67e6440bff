import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Log } from "./support/logs";
import { expectAccessible } from "./support/axe";
import { expect, picture, test } from "./support/test";
import { Threadline } from "./support/threadline";

for (const scheme of ["light", "dark"] as const) {
  test(`every panel shows its session and axe finds nothing, ${scheme}`, async ({ app, page, server }) => {
    await page.emulateMedia({ colorScheme: scheme });
    await app.send("Say it, then look:\n$ touch made.txt");
    await app.byId("approve").click();
    await app.ended(1);
    const id = await app.sessionId();
    await expectAccessible(page);

    await expect(app.byId("integrity")).toHaveAttribute("data-state", "not_checked");
    await app.byId("verify").click();
    await expect(app.byId("integrity")).toHaveAttribute("data-state", "intact");
    await expect(app.byId("verify-report")).toContainText(/\d+ events read/);
    await app.byId("verify-requests").click();
    await expect(app.byId("verify-report")).toContainText("Every request is rebuilt");
    await picture(page, `panel-session-${scheme}`);
    await expectAccessible(page);

    await app.byId("tab-lineage").click();
    await expect(app.byId("lineage")).toContainText("forked from none");
    await expectAccessible(page);
    const fork = await server.fork(id);
    await app.byId("tab-session").click();
    await app.byId("tab-lineage").click();
    const child = page.locator(`[data-testid="lineage-node"][data-id="${fork}"]`);
    await expect(child).toHaveAttribute("data-kind", "fork");
    await picture(page, `panel-lineage-${scheme}`);
    await expectAccessible(page);

    await app.byId("tab-audit").click();
    const entries = app.byId("audit-entry");
    await expect(entries.first()).toContainText("Approved");
    await expect(entries.nth(1)).toContainText("touch made.txt");
    await expect(entries.last()).toContainText("Policy from turn 1 on");
    await expect(app.byId("durable-seq")).toHaveText(/^event \d+/);
    await picture(page, `panel-audit-${scheme}`);
    await expectAccessible(page);

    await app.byId("tab-debug").click();
    await expect(app.byId("span")).toHaveCount(4);
    await app.byId("debug-step").nth(1).getByRole("button").first().click();
    await expect(app.byId("request-diff")).toContainText("0 removed");
    await expect(app.byId("request-diff").getByLabel("Items added")).toContainText("+ {");
    await picture(page, `panel-debug-${scheme}`);
    await expectAccessible(page);

    await app.byId("tab-lineage").click();
    await child.getByRole("link").click();
    await app.live(fork);
    await expect(page.locator(`[data-testid="lineage-node"][data-id="${id}"] a`)).toBeVisible();
  });
}

test("a line of the log has an address that leads back to it", async ({ app, page }) => {
  await app.send("one");
  await app.ended(1);
  const id = await app.sessionId();
  const line = page.locator('[data-testid="log-row"][data-seq="0"]');
  await line.getByRole("button").first().click();
  await line.getByRole("button", { name: "Show in the conversation" }).click();
  await expect(page).toHaveURL(new RegExp(`#/session/${id}/e/0$`));
  await expect(line).toHaveAttribute("data-sought", "true");
  await page.reload();
  await app.live(id);
  await expect(line).toHaveAttribute("data-sought", "true");
});

test("an event opens as a tree that keys lead through, and its values and paths are copied", async ({ context, page, place, server }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const pasted = (): Promise<string> => page.evaluate(() => navigator.clipboard.readText());
  const log = new Log(place);
  const lines = Array.from({ length: 300 }, (_, at) => `line ${at}`);
  const hostile = "<img src=x onerror=alert(1)> user\u202egnp.exe";
  log.open("look").call("shell", { command: "true" }, lines.join("\n"), {
    meta: { list: lines, "a key": { [hostile]: hostile } },
  });
  log.answer("done").close();
  log.write();
  const app = await Threadline.open(page, server);
  await app.openSession(log.id);
  const line = page.locator('[data-testid="log-row"][data-type="tool/result"]');
  await line.getByRole("button").first().click();
  const tree = line.getByRole("tree", { name: /Event \d+ as JSON/ });
  const at = (path: string) => tree.locator(`[role="treeitem"][data-path='${path}']`);
  const chosen = tree.locator('[aria-selected="true"]');
  await expect(at(".data.name")).toContainText('"shell"');
  await expect(at(".data.meta.list")).toHaveAttribute("aria-expanded", "false");
  await expect(at(".data.meta.list")).toContainText("[300 items]");
  // Hostile text is text, in names as in values.
  await expect(at('.data.meta["a key"]').first()).toBeVisible();
  await expect(tree).toContainText("<img src=x onerror=alert(1)> user\\u202egnp.exe: ");
  expect(await tree.locator("img").count()).toBe(0);

  await tree.focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowLeft");
  await expect(tree.getByRole("treeitem")).toHaveCount(1);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("End");
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  await expect(chosen).toHaveAttribute("data-path", ".seq");
  await page.keyboard.press("ArrowLeft");
  await expect(chosen).toHaveAttribute("data-path", ".");

  // A long list by parts.
  await at(".data.meta.list").click();
  await expect(at(".data.meta.list[99]")).toHaveAttribute("aria-posinset", "100");
  await expect(at(".data.meta.list[100]")).toHaveCount(0);
  await tree.getByText("Show more: 200 items not shown").click();
  await expect(at(".data.meta.list[199]")).toContainText('"line 199"');
  await expectAccessible(page);
  await picture(page, "log-tree");

  // A long text opens, and what is copied is all of it.
  await at(".data.content[0].text").first().click();
  await expect(tree.locator('[data-kind="text"]')).toContainText("line 299");
  await line.getByRole("button", { name: "Copy value" }).click();
  await expect(line.getByRole("button", { name: "Copied" })).toBeVisible();
  expect(await pasted()).toBe(lines.join("\n"));
  await line.getByRole("button", { name: "Copy path" }).click();
  await expect.poll(pasted).toBe(".data.content[0].text");
});

test("a session is exported as its log, as Markdown and as one inert page", async ({ app, page }) => {
  const hostile = "<script>alert('x')</script><img src=x onerror=alert(1)>";
  await app.send(`say ${hostile}`);
  await app.ended(1);
  const save = async (format: string): Promise<string> => {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      app.byId(`export-${format}`).click(),
    ]);
    return readFileSync(await download.path(), "utf8");
  };
  const log = await save("jsonl");
  expect(log.trimEnd().split("\n").every((line) => typeof JSON.parse(line) === "object")).toBe(true);
  expect(await save("markdown")).toContain("## Turn 1");
  const html = await save("html");
  expect(html).toContain("&lt;script&gt;");
  const copy = await page.context().newPage();
  await copy.setContent(html);
  expect(await copy.locator("script, iframe, object, embed, img, form").count()).toBe(0);
  await expect(copy.getByRole("heading", { name: "Turn 1" })).toBeVisible();
  await copy.close();
});

test("a check names the place of damage and what to do", async ({ app, place, server }) => {
  await app.send("one");
  await app.ended(1);
  const id = await app.sessionId();
  await server.kill();
  const path = place.log(id);
  const bytes = readFileSync(path);
  const at = bytes.indexOf("step/start");
  bytes[at] = "S".charCodeAt(0);
  writeFileSync(path, bytes);
  await server.restart();
  await app.byId("verify").click();
  await expect(app.byId("integrity")).toHaveAttribute("data-state", "damaged");
  await expect(app.byId("verify-report")).toContainText(/damaged at byte \d+/);
  await expect(app.byId("verify-report")).toContainText(`threadline repair ${id} --dry-run`);
});

test("a long check says how far it is and can be stopped, and the next one need not wait for it", async ({ page, place, server }) => {
  // Every request is longer than the one before it, so that rebuilding them takes long.
  const long = new Log(place);
  long.open("a long session");
  for (let at = 0; at < 1500; at++) long.call("shell", { command: "true" }, "x".repeat(2000));
  long.answer("done").close();
  long.write();
  const app = await Threadline.open(page, server);
  await app.openSession(long.id);
  await app.byId("verify").click();
  await expect(app.byId("integrity")).toHaveAttribute("data-state", "intact");
  await app.byId("verify-requests").click();
  await expect(app.byId("verify-progress")).toHaveAttribute("data-stage", "requests");
  await expect(app.byId("verify-progress")).toContainText(/\d+ % of [3-5](\.\d)? MiB/);
  await picture(page, "verify-progress");
  await app.byId("verify-stop").click();
  await expect(app.byId("integrity")).toHaveAttribute("data-state", "stopped");
  await app.byId("verify").click();
  await expect(app.byId("integrity")).toHaveAttribute("data-state", "intact");
});

test("the audit tells grants as what they are, and the epoch of the writer", async ({ page, place, server }) => {
  const log = new Log(place);
  log.open("build it");
  log.event("approval/granted", { grantId: "grant-1", prefix: ["make", "ch\u202eeck"], by: "page" });
  log.event("approval/revoked", { grantId: "grant-1", by: "api" });
  log.answer("done").close();
  log.write();
  const app = await Threadline.open(page, server);
  await app.openSession(log.id);
  await app.byId("tab-audit").click();
  const entry = (kind: string) => page.locator(`[data-testid="audit-entry"][data-kind="${kind}"]`);
  await expect(entry("granted")).toContainText("Granted by page: commands that begin with");
  await expect(entry("granted")).toContainText("make ch\\u202eeck");
  await expect(entry("revoked")).toContainText("Revoked by api");
  await expect(entry("other")).toHaveCount(0);
  await expect(app.byId("epoch")).toHaveText("not known");
  await app.byId("tab-session").click();
  await app.continueSession(log.id);
  await app.send("go on");
  await app.ended(2);
  await app.byId("tab-audit").click();
  await expect(app.byId("epoch")).toHaveText(/^1; writers of earlier ones are fenced/);
  await expectAccessible(page);
});

test("a turn and its session show what they have used and what that costs, when there is a price", async ({ page, place, server }) => {
  const log = new Log(place);
  log.open("look").answer("first").event("subagent/usage", {
    sessionId: "0199a8c2-5c00-7000-8000-0000000000aa",
    usage: { inputTokens: 1000, outputTokens: 100 },
    added: { inputTokens: 1000, outputTokens: 100 },
  });
  log.close();
  log.open("again").answer("second").close();
  log.write();
  const app = await Threadline.open(page, server);
  await app.openSession(log.id);
  await expect(app.turn(1)).toContainText("4.2k in, 180 out");
  await expect(app.turn(1).getByTestId("turn-subagents")).toHaveText("subagents 1k in, 100 out");
  await expect(app.byId("turn-cost")).toHaveCount(0);
  await expect(app.byId("session-cost")).toHaveCount(0);

  const folder = join(place.root, ".config", "threadline");
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, "config.toml"),
    '[models."offline/demonstration"]\nprice = { input = 3.0, cached_input = 0.3, output = 15.0 }\n' +
      "[limits]\nmax_steps = 7\nsession_cost = 2.0\n",
  );
  await server.kill();
  await server.restart();
  await page.reload();
  await app.live(log.id);
  await expect(app.turn(1).getByTestId("turn-cost")).toHaveText("cost 0.0198");
  await expect(app.turn(2).getByTestId("turn-cost")).toHaveText("cost 0.0153");
  await expect(app.byId("session-cost")).toHaveText("cost 0.0351");
  const facts = app.byId("usage-facts");
  await expect(facts).toContainText("8,400 tokens read");
  await expect(facts).toContainText("1,000 tokens read, 100 written");
  await expect(facts).toContainText("7 steps");
  await expect(facts).toContainText("a cost of 2.00");
  await picture(page, "usage");
  await expectAccessible(page);
});

test.describe("phone", () => {
  test.use({ viewport: { width: 390, height: 844 }, hasTouch: true });

  test("every panel fits a phone", async ({ app, page }) => {
    await app.send("$ ls");
    await app.ended(1);
    await page.getByRole("navigation", { name: "Parts of the page" }).getByRole("button", { name: "Log" }).click();
    for (const tab of ["session", "lineage", "audit", "debug"]) {
      await app.byId(`tab-${tab}`).click();
      await expect(page.getByRole("tabpanel")).not.toContainText("Loading");
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
      await picture(page, `panel-${tab}-phone`);
      await expectAccessible(page);
    }
  });
});
