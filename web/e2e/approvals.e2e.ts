import { existsSync, readFileSync } from "node:fs";
import { expectAccessible } from "./support/axe";
import { expect, picture, test } from "./support/test";

test("approve: another browser answers, the first one sees it, the tool runs once", async ({ app, other, place, server }) => {
  await app.send("count\n$ echo ran >> count.txt");
  await expect(app.byId("approve")).toBeVisible();
  const id = await app.sessionId();
  await expect(app.row(id)).toHaveAttribute("data-status", "waiting");
  const card = app.turn(1).getByTestId("tool-card");
  await expect(card).toContainText("echo ran >> count.txt");
  await picture(app.page, "approval");
  expect(existsSync(place.file("count.txt"))).toBe(false);

  const second = await other(server);
  await second.openSession(id);
  await second.byId("approve").click();
  await second.ended(1);
  await app.ended(1);
  for (const page of [app, second]) {
    await expect(page.byId("approve")).toHaveCount(0);
    await expect(page.turn(1).getByTestId("tool-card")).toHaveAttribute("data-outcome", "ok");
    await expect(page.turn(1).locator(".approval-note")).toHaveAttribute("data-decision", "approved");
    await page.expectExactlyOnce(id);
  }
  expect(readFileSync(place.file("count.txt"), "utf8")).toBe("ran\n");
});

test("both browsers answer at once: one answer counts", async ({ app, other, place, server }) => {
  await app.send("$ echo ran >> count.txt");
  await expect(app.byId("approve")).toBeVisible();
  const id = await app.sessionId();
  const second = await other(server);
  await second.openSession(id);
  await expect(second.byId("approve")).toBeVisible();
  // Neither answer leaves before both were given.
  const answers: (() => void)[] = [];
  for (const { page } of [app, second]) {
    await page.route("**/api/agent/approvals/**", (route) => {
      answers.push(() => void route.continue());
      if (answers.length === 2) for (const answer of answers) answer();
    });
  }
  await app.byId("approve").click();
  await second.byId("approve").click();
  await app.ended(1);
  await second.ended(1);
  await expect(app.byId("error-banner")).toHaveCount(0);
  await expect(second.byId("error-banner")).toHaveCount(0);
  expect(readFileSync(place.file("count.txt"), "utf8")).toBe("ran\n");
});

test("deny with a comment: the tool does not run, the model reads the comment", async ({ app, place, server }) => {
  await app.send("$ touch made.txt");
  await app.page.getByLabel("Comment for the model").fill("Not in this folder, please.");
  await app.byId("deny").click();
  await app.ended(1);
  const card = app.turn(1).getByTestId("tool-card");
  await expect(card).toHaveAttribute("data-outcome", "denied");
  await expect(card).toContainText("Not in this folder, please.");
  await expect(card.locator(".approval-note")).toHaveAttribute("data-decision", "denied");
  expect(existsSync(place.file("made.txt"))).toBe(false);
  const { requests } = await server.requests(await app.sessionId());
  const last = await server.request(await app.sessionId(), requests.at(-1)?.step ?? 0);
  expect(JSON.stringify(last.request.items)).toContain("Not in this folder, please.");
});

test("approve for the session: the same command is not asked for again, another one is", async ({ app, place }) => {
  await app.send("$ echo ran >> count.txt");
  await app.byId("approve-session").click();
  await app.ended(1);
  const id = await app.sessionId();
  await app.continueSession(id);
  await app.send("again\n$ echo ran >> count.txt");
  await app.ended(2);
  await expect(app.turn(2).getByTestId("tool-card")).toHaveAttribute("data-outcome", "ok");
  expect(readFileSync(place.file("count.txt"), "utf8")).toBe("ran\nran\n");
  await app.send("$ echo other >> count.txt");
  await expect(app.byId("approve")).toBeVisible();
  await app.byId("deny").click();
  await app.ended(3);
  expect(readFileSync(place.file("count.txt"), "utf8")).toBe("ran\nran\n");
});

test("a question survives a reload", async ({ app }) => {
  await app.send("$ touch made.txt");
  await expect(app.byId("approve")).toBeVisible();
  const id = await app.sessionId();
  await app.page.reload();
  await app.live(id);
  await app.byId("approve").click();
  await app.ended(1);
  await app.expectExactlyOnce(id);
});

test("a question outlives the server: it is offered again, answered in another browser, and runs once", async ({
  other,
  place,
  strict,
  strictApp: app,
  strictServer: server,
}) => {
  const call = { id: "call_mark", name: "shell", arguments: { command: "echo ran >> count.txt" } };
  await strict.script({ when: { user: "mark it" }, steps: [{ toolCall: call }] });
  await app.send("mark it");
  await expect(app.byId("approve")).toBeVisible();
  const id = await app.sessionId();
  await server.kill();
  await server.restart();
  await app.live(id);
  await expect(app.card("call_mark")).toHaveAttribute("data-outcome", "not_started");
  await expect(app.byId("offer")).toBeVisible();
  // One thing to do, not two: the answer, and no call made again beside it.
  await expect(app.card("call_mark")).toHaveAttribute("data-state", "asking");
  await expect(app.byId("retry-call")).toHaveCount(0);
  await expectAccessible(app.page);
  await picture(app.page, "offered-again");
  expect(existsSync(place.file("count.txt"))).toBe(false);

  await strict.script(
    { when: { user: "has now approved" }, steps: [{ toolCall: { ...call, id: "call_again" } }] },
    { when: { last: "exit code 0" }, text: "Marked." },
  );
  const second = await other(server);
  await second.openSession(id);
  await second.byId("approve").click();
  await app.ended(2);
  await expect(app.turn(2)).toContainText("Marked.");
  expect(readFileSync(place.file("count.txt"), "utf8")).toBe("ran\n");
  await expect(app.byId("offer")).toHaveCount(0);
  await app.page.reload();
  await app.live(id);
  await expect(app.byId("offer")).toHaveCount(0);
});

test("the words that a question offers are approved, shown and revoked", async ({ app, place }) => {
  const panel = app.byId("grants");
  await app.send("$ make check");
  await expect(app.byId("approve-prefix")).toContainText("make check");
  await app.byId("approve-prefix").click();
  await app.ended(1);
  await expect(app.turn(1).locator(".approval-note")).toContainText("make check");
  await app.byId("grants-toggle").click();
  await expect(panel.getByTestId("grant")).toHaveCount(1);
  await expect(panel).toContainText("make check");
  await picture(app.page, "grants");

  // A second one, given by hand; what would allow anything is refused with a reason.
  const field = panel.getByLabel("Commands to approve, by the words they begin with");
  await field.fill("sh");
  await app.byId("grant-add").click();
  await expect(panel.getByTestId("error-banner")).toContainText("would allow anything");
  await field.fill("touch made");
  await app.byId("grant-add").click();
  await expect(panel.getByTestId("grant")).toHaveCount(2);
  await expect(panel.getByTestId("error-banner")).toHaveCount(0);
  await app.page.keyboard.press("Escape");
  await expect(panel).toHaveCount(0);
  await app.continueSession(await app.sessionId());
  await app.send("$ touch made");
  await app.ended(2);
  expect(existsSync(place.file("made"))).toBe(true);

  await app.byId("grants-toggle").click();
  await panel.getByTestId("grant").filter({ hasText: "touch made" }).getByTestId("grant-revoke").click();
  await expect(panel.getByTestId("grant")).toHaveCount(1);
  await app.page.keyboard.press("Escape");
  await app.send("$ touch made again");
  await expect(app.byId("approve")).toBeVisible();
  await app.byId("deny").click();
  await app.ended(3);
});
