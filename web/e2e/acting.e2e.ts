import { existsSync } from "node:fs";
import { words } from "./support/strict";
import { expect, picture, test } from "./support/test";
import { expectAccessible } from "./support/axe";

test("messages sent during a run are queued, changed, withdrawn and delivered once, and two browsers agree", async ({
  other,
  strict,
  strictApp: app,
  strictServer: server,
}) => {
  await strict.script(
    { when: { user: "begin" }, steps: [{ text: words(1, 4) }, { gate: "first" }, { text: "done." }] },
    { when: { user: "second, mended" }, text: "Heard the second." },
  );
  await app.send("begin");
  await strict.reached("first");
  const id = await app.sessionId();
  await app.byId("continue-viewed").click();
  await expect(app.byId("send")).toHaveText("Queue");
  await app.send("second");
  await app.send("never mind");
  await expect(app.byId("queued")).toHaveCount(2);
  await expect(app.byId("composer")).toHaveValue("");

  const second = await other(server);
  await second.openSession(id);
  await expect(second.byId("queued")).toHaveCount(2);
  await picture(app.page, "queue");
  await expectAccessible(app.page);
  await second.byId("queued").nth(1).getByTestId("queue-drop").click();
  await expect(app.byId("queued")).toHaveCount(1);
  await app.byId("queue-edit").click();
  await app.byId("queue-field").fill("second, mended");
  await app.byId("queue-field").press("Enter");
  await expect(second.byId("queued")).toContainText("second, mended");
  await second.byId("queued").getByLabel("When it is delivered").selectOption("next_step");
  await expect(app.byId("queued").getByLabel("When it is delivered")).toHaveValue("next_step");

  await strict.open("first");
  await app.ended(2);
  await expect(app.turn(2)).toContainText("Heard the second.");
  await expect(app.byId("queue")).toHaveCount(0);
  await second.ended(2);
  const said = (await server.turns(id)).turns.flatMap((turn) => turn.items).filter((item) => item.kind === "user");
  expect(said.filter((item) => item.source === "queued" || item.source === "steer")).toHaveLength(1);
  await app.expectExactlyOnce(id);
});

test("what was queued outlives the server and is delivered when somebody says so", async ({
  strict,
  strictApp: app,
  strictServer: server,
}) => {
  await strict.script({ when: { user: "begin" }, steps: [{ text: "On it." }, { gate: "never" }] });
  await app.send("begin");
  await strict.reached("never");
  const id = await app.sessionId();
  await app.byId("continue-viewed").click();
  await app.send("and then this");
  await expect(app.byId("queued")).toHaveCount(1);
  await server.kill();
  await expect(app.byId("offline")).toBeVisible();
  await picture(app.page, "offline");
  await expectAccessible(app.page);
  await server.restart();
  await expect(app.byId("offline")).toHaveCount(0);
  await app.ended(1, "interrupted");
  await picture(app.page, "interrupted");
  await strict.script({ when: { user: "and then this" }, text: "Then that." });
  await app.byId("deliver").click();
  await app.ended(2);
  await expect(app.turn(2)).toContainText("Then that.");
  await expect(app.byId("queue")).toHaveCount(0);
  await app.live(id);
});

test("what waits for approval is seen and answered from any session, and by any browser once", async ({
  app,
  other,
  page,
  place,
  server,
}) => {
  await app.send("$ touch made.txt");
  await expect(app.byId("approve")).toBeVisible();
  const id = await app.sessionId();
  await app.byId("new-session").click();
  await expect(app.byId("open-tray").first()).toHaveAttribute("data-waiting", "1");
  await expect(page).toHaveTitle(/^\(1\) /);
  await expect(page.locator('link[rel="icon"]')).toHaveAttribute("href", "./favicon-waiting.svg");
  const second = await other(server);
  await expect(second.byId("open-tray").first()).toHaveAttribute("data-waiting", "1");

  await page.keyboard.press("Escape");
  await page.keyboard.press("a");
  await expect(app.byId("tray-entry")).toContainText("touch made.txt");
  await expect(app.byId("tray-entry")).toHaveAttribute("data-session-id", id);
  await picture(page, "tray");
  await expectAccessible(page);
  expect(existsSync(place.file("made.txt"))).toBe(false);
  await app.byId("tray").getByTestId("approve").click();
  await expect(app.byId("tray")).toContainText("Nothing waits for your approval.");
  await expect(second.byId("open-tray").first()).toHaveAttribute("data-waiting", "0");
  await expect.poll(() => existsSync(place.file("made.txt"))).toBe(true);
  await page.keyboard.press("Escape");
  await expect(app.byId("tray")).toHaveCount(0);
  await expect(page).not.toHaveTitle(/^\(/);
});

test("fork, edit and send again, compare", async ({ app, page }) => {
  await app.send("the first task");
  await app.ended(1);
  const parent = await app.sessionId();
  await app.continueSession(parent);
  await app.send("the second task\n$ ls");
  await app.ended(2);

  await app.turn(1).hover();
  await app.turn(1).getByTestId("turn-fork").click();
  await expect(app.byId("branch")).toContainText("up to the end of turn 1");
  await expect(app.byId("not-undone")).toContainText("1 tool call");
  await expectAccessible(page);
  await picture(page, "fork-dialog");
  await app.byId("branch-do").click();
  await expect.poll(() => app.sessionId()).not.toBe(parent);
  const fork = await app.sessionId();
  await app.live(fork);
  await expect(app.turn(1)).toContainText("the first task");
  await expect(app.turn(2)).toHaveCount(0);
  await expect(app.banner).toHaveAttribute("data-session-id", fork);
  await expect(app.row(fork)).toContainText(`fork of ${parent.slice(0, 8)}`);

  await app.openSession(parent);
  await app.turn(2).hover();
  await app.turn(2).getByTestId("turn-edit").click();
  await expect(app.byId("branch-text")).toHaveValue("the second task\n$ ls");
  await app.byId("branch-text").fill("another second task");
  await app.byId("branch-do").click();
  await expect.poll(() => app.sessionId()).not.toBe(parent);
  const edited = await app.sessionId();
  await app.ended(2);
  await expect(app.turn(2)).toContainText("another second task");
  await expect(app.turn(2).getByTestId("item-user")).toHaveCount(1);

  await app.byId("open-compare").click();
  const columns = app.byId("compare-column");
  await expect(columns).toHaveCount(2);
  await expect(app.byId("compare")).toContainText("1 turn in common");
  await expect(columns.nth(0)).toContainText("another second task");
  await expect(columns.nth(1)).toContainText("the second task");
  await picture(page, "compare");
  await expectAccessible(page);
  await app.byId("compare-with").selectOption(fork);
  await expect(columns.nth(1)).toHaveAttribute("data-session-id", fork);
  await expect(columns.nth(1)).toContainText("Nothing beyond what both have in common.");
  await page.keyboard.press("Escape");
  await expect(app.byId("compare")).toHaveCount(0);
  await expect(app.byId("open-compare")).toBeFocused();
  expect(await app.sessionId()).toBe(edited);

  // The first message has nothing before it.
  await app.openSession(parent);
  await app.turn(1).hover();
  await app.turn(1).getByTestId("turn-edit").click();
  await app.byId("branch-text").fill("quite another task");
  await app.byId("branch-do").click();
  await expect.poll(() => app.sessionId()).not.toBe(parent);
  await app.ended(1);
  await expect(app.turn(1)).toContainText("quite another task");
});

test("rewind says what it does not undo; redo takes it back; both browsers see it", async ({ app, other, page, place, server }) => {
  await app.send("the first task");
  await app.ended(1);
  const id = await app.sessionId();
  await app.continueSession(id);
  await app.send("$ touch kept.txt", { approval: "never" });
  await app.ended(2);
  const second = await other(server);
  await second.openSession(id);

  await app.turn(1).hover();
  await app.turn(1).getByTestId("turn-rewind").click();
  await expect(app.byId("branch")).toContainText("Nothing is removed");
  await expect(app.byId("not-undone")).toContainText("touch kept.txt");
  await picture(page, "rewind-dialog");
  await expectAccessible(page);
  await page.keyboard.press("Escape");
  await expect(app.byId("branch")).toHaveCount(0);
  await app.turn(1).hover();
  await app.turn(1).getByTestId("turn-rewind").click();
  await app.byId("branch-do").click();
  await expect(app.page.locator(".turns")).toContainText("Went back to event");
  await expect(second.page.locator(".turns")).toContainText("Went back to event");
  expect(existsSync(place.file("kept.txt"))).toBe(true);
  await second.byId("redo").click();
  await expect(app.page.locator(".turns")).toContainText("Went forward again");
  await expect(app.byId("redo")).toHaveCount(0);
  await app.expectExactlyOnce(id);
});

test("each session has its draft over a reload, and its own prompts come back", async ({ app, page, server }) => {
  const first = await server.run({ task: "the older prompt" });
  const second = await server.run({ task: "the newer prompt" });
  const composer = app.byId("composer");
  await app.openSession(first);
  await app.continueSession(first);
  await composer.press("ArrowUp");
  await expect(composer).toHaveValue("the older prompt");
  await composer.press("ArrowDown");
  await expect(composer).toHaveValue("");
  await composer.fill("a draft for the first");
  await app.openSession(second);
  await app.continueSession(second);
  await expect(composer).toHaveValue("");
  await composer.fill("a draft for the second");
  await page.reload();
  await expect(composer).toHaveValue("a draft for the second");
  await app.openSession(first);
  await app.continueSession(first);
  await expect(composer).toHaveValue("a draft for the first");
});

test("escape twice stops the run; once says so", async ({ strict, strictApp: app }) => {
  await strict.script({ when: { user: "talk" }, steps: [{ text: "I talk" }, { gate: "g" }] });
  await app.send("talk");
  await strict.reached("g");
  await expect(app.byId("stop")).toBeVisible();
  await app.byId("composer").focus();
  await app.page.keyboard.press("Escape");
  await expect(app.page.getByText("Press Esc again to stop the run.")).toBeVisible();
  await app.page.keyboard.press("Escape");
  await app.ended(1, "cancelled");
  // What was broken off can be taken up again.
  await app.byId("turn-continue").click();
  await expect(app.banner).toBeVisible();
});

test("what held before is shown, wider is said in words, and another model is asked", async ({ strict, strictApp: app }) => {
  await strict.script({ when: { user: "hello" }, text: "Hello." });
  await app.byId("sandbox-mode").selectOption("read_only");
  await app.send("hello", { approval: "strict" });
  await app.ended(1);
  await app.continueSession(await app.sessionId());
  await expect(app.byId("approval-policy").locator("option:checked")).toHaveText("Ask always (as before)");
  await expect(app.byId("sandbox-mode").locator("option:checked")).toHaveText("Read only (as before)");
  await expect(app.byId("model")).toHaveAttribute("placeholder", "strict");
  await expect(app.byId("widening")).toHaveCount(0);
  await app.byId("sandbox-mode").selectOption("workspace_write");
  await expect(app.byId("widening")).toContainText("Read only becomes Write workspace");
  await picture(app.page, "widening");
  await expectAccessible(app.page);
  await strict.script({ when: { user: "with another" }, text: "Another answers." });
  await app.byId("model").fill("another-model");
  await app.send("with another");
  await app.ended(2);
  const { requests } = await strict.state();
  expect(requests.at(-1)?.json).toMatchObject({ model: "another-model" });
  await app.byId("tab-session").click();
  await expect(app.byId("model")).toHaveAttribute("placeholder", "another-model");
});

test("images are attached, previewed, refused with a reason, taken away and sent", async ({ app, page }) => {
  // A server that takes images says so in its configuration.
  await page.route("**/api/agent/config", async (route) => {
    const answer = await route.fetch();
    const config = (await answer.json()) as object;
    const images = { count: 2, bytes: 2000, mediaTypes: ["image/png"] };
    await route.fulfill({ response: answer, json: { ...config, images } });
  });
  const sent: { images?: { mediaType: string; data: string }[] }[] = [];
  await page.route("**/api/agent/stream", (route) => {
    sent.push(route.request().postDataJSON() as (typeof sent)[number]);
    return route.fulfill({ status: 400, json: { code: "bad_image", detail: "not today" } });
  });
  await page.reload();
  const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
  const file = (name: string, mimeType = "image/png", buffer = png) => ({ name, mimeType, buffer });
  await app.byId("attach").setInputFiles([file("one.png"), file("two.png"), file("three.png")]);
  await expect(app.byId("attachment")).toHaveCount(2);
  await expect(app.byId("error-banner")).toContainText("a message may have 2 images");
  await picture(page, "attachments");
  await expectAccessible(page);
  await page.getByRole("button", { name: "Remove two.png" }).click();
  await expect(app.byId("attachment")).toHaveCount(1);
  await app.byId("attach").setInputFiles([file("big.png", "image/png", Buffer.alloc(2001)), file("x.svg", "image/svg+xml")]);
  await expect(app.byId("error-banner")).toContainText("big.png has 2.0 KiB");
  await expect(app.byId("error-banner")).toContainText("x.svg is no image that models take: PNG");
  await page.evaluate((data) => {
    const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], "", { type: "image/png" }));
    const paste = new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true });
    document.getElementById("composer-text")?.dispatchEvent(paste);
  }, png.toString("base64"));
  await expect(app.byId("attachment")).toHaveCount(2);
  await app.byId("composer").fill("look at these");
  await app.byId("send").click();
  await expect(page.locator(".composer").getByTestId("error-banner").first()).toContainText("Not today.");
  expect(sent[0]?.images).toEqual([
    { mediaType: "image/png", data: png.toString("base64") },
    { mediaType: "image/png", data: png.toString("base64") },
  ]);
  // What was refused is not lost.
  await expect(app.byId("attachment")).toHaveCount(2);
  await expect(app.byId("composer")).toHaveValue("look at these");
});
