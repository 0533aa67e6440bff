import { readFileSync, writeFileSync } from "node:fs";
import { expectAccessible } from "./support/axe";
import { alive } from "./support/processes";
import { words } from "./support/strict";
import { expect, picture, test } from "./support/test";

test("a first visit: an empty page, a task, a finished turn with a tool call", async ({ app, page, place, server }) => {
  writeFileSync(place.file("notes.txt"), "remember the milk\n");
  await expect(app.byId("session-row")).toHaveCount(0);
  await expect(page.getByText("No sessions yet.")).toBeVisible();
  await expect(app.byId("demonstration")).toContainText("no model is connected");
  await expect(app.byId("send")).toBeDisabled();
  await picture(page, "first-visit");

  await app.send("Show me what is here:\n$ ls");
  await app.ended(1);
  const card = app.turn(1).getByTestId("tool-card");
  await expect(card).toHaveAttribute("data-outcome", "ok");
  await expect(card).toContainText("notes.txt");
  const id = await app.sessionId();
  await expect(app.row(id)).toHaveAttribute("data-status", "idle");
  await expect(app.byId("current-run").locator(".run-body")).toHaveAttribute("data-session-id", id);
  await expect(app.byId("composer")).toHaveValue("");
  await app.expectExactlyOnce(id);
  expect(await server.sessions()).toHaveLength(1);
  await picture(page, "finished-turn");
});

test("without the token there is no page and no data", async ({ page, server }) => {
  const answer = await page.goto(server.origin);
  expect(answer?.status()).toBe(401);
  await expect(page.locator("body")).toContainText("threadline serve");
  const wrong = await page.goto(`${server.origin}/?token=wrong`);
  expect(wrong?.status()).toBe(401);
  const data = await page.request.get(`${server.origin}/api/agent/sessions`);
  expect(data.status()).toBe(401);
});

test("continue a session, then start a new one", async ({ app, server }) => {
  await app.send("the first");
  await app.ended(1);
  const id = await app.sessionId();
  await expect(app.banner).toHaveCount(0);
  await app.continueSession(id);
  await expect(app.byId("composer")).toBeFocused();

  await app.send("the second");
  await app.ended(2);
  expect(await app.sessionId()).toBe(id);
  await expect(app.turn(2)).toContainText("User messages in this conversation so far: 2.");
  const run = app.byId("current-run").locator(".run-body");
  await expect(run).toHaveAttribute("data-session-id", id);
  await expect(run).not.toHaveAttribute("data-run-id", id);
  await expect(run).toContainText(`continuing session ${id.slice(0, 8)}`);
  await expect(app.byId("session-row")).toHaveCount(1);
  await app.expectExactlyOnce(id);

  // A reload must not silently turn the next task into a new conversation.
  await app.page.reload();
  await expect(app.banner).toContainText(id.slice(0, 8));
  await app.byId("start-new").click();
  await expect(app.banner).toHaveCount(0);
  await app.send("something else");
  await expect.poll(() => app.sessionId()).not.toBe(id);
  await app.ended(1);
  await expect(app.byId("session-row")).toHaveCount(2);
  await expect(app.byId("current-run")).not.toContainText("continuing session");
  expect((await server.turns(id)).turns).toHaveLength(2);
});

test("stop: the run is cancelled, what was said is kept and marked", async ({ strict, strictApp: app }) => {
  await strict.script({
    when: { user: "tell me" },
    steps: [{ text: "It begins so" }, { gate: "middle" }, { text: " and goes on." }],
  });
  await app.send("tell me a story");
  await strict.reached("middle");
  const answer = app.turn(1).getByTestId("item-assistant");
  await expect(answer).toContainText("It begins so");
  await expect(answer).toHaveAttribute("data-streaming", "true");
  await picture(app.page, "running");
  await expectAccessible(app.page);
  const id = await app.sessionId();
  await app.byId("stop").click();
  await app.ended(1, "cancelled");
  await expect(answer).toContainText("It begins so");
  await expect(answer).toHaveAttribute("data-interrupted", "true");
  await expect(answer).toContainText("Interrupted");
  await expect(app.byId("stop")).toHaveCount(0);
  await app.expectExactlyOnce(id);

  await strict.script({ when: { user: "go on" }, text: "Here is the rest." });
  await app.continueSession(id);
  await app.send("go on");
  await app.ended(2);
  await expect(app.turn(2)).toContainText("Here is the rest.");
  expect((await strict.state()).violations).toEqual([]);
});

test("stop ends a running tool", async ({ app, place }) => {
  await app.send("$ echo $$ > pid; echo begun; sleep 300", { approval: "never" });
  const card = app.turn(1).getByTestId("tool-card");
  await expect(card.getByLabel("Output so far")).toHaveText("begun");
  const pid = Number(readFileSync(place.file("pid"), "utf8"));
  await app.byId("stop").click();
  await app.ended(1, "cancelled");
  await expect(card).toHaveAttribute("data-outcome", "cancelled");
  await expect.poll(() => alive(pid)).toBe(false);
});

test("a reload in the middle of a run loses nothing and shows nothing twice", async ({ place, strict, strictApp: app }) => {
  const command = "echo waiting; until [ -e go ]; do sleep 0.05; done; echo finished";
  await strict.script(
    {
      when: { user: "work" },
      steps: [
        { reasoning: "hm" },
        { text: words(1, 10) },
        { gate: "a" },
        { text: words(11, 20) },
        { gate: "b" },
        { toolCall: { id: "call_1", name: "shell", arguments: { command } } },
      ],
    },
    { when: { last: "finished" }, steps: [{ text: words(21, 25) }, { gate: "c" }, { text: words(26, 30) }] },
  );
  await app.send("work", { approval: "never" });
  await strict.reached("a");
  await expect(app.turn(1)).toContainText("w10");
  const id = await app.sessionId();

  const reload = async (): Promise<void> => {
    await app.page.reload();
    await app.live(id);
    await expect(app.byId("current-run").locator(".run-body")).toHaveAttribute("data-session-id", id);
    await expect(app.byId("stop")).toBeVisible();
  };
  await reload();
  await expect(app.turn(1)).toContainText("w10");
  await strict.open("a");
  await strict.reached("b");
  await expect(app.turn(1)).toContainText("w20");
  await reload();
  await strict.open("b");
  await expect(app.card("call_1").getByLabel("Output so far")).toHaveText("waiting");
  await reload();
  await expect(app.card("call_1").getByLabel("Output so far")).toHaveText("waiting");
  await expect(app.card("call_1")).toHaveAttribute("data-state", "running");
  writeFileSync(place.file("go"), "");
  await strict.reached("c");
  await expect(app.turn(1)).toContainText("w25");
  await reload();
  await strict.open("c");
  await app.ended(1);
  await app.expectExactlyOnce(id);
  const text = await app.turn(1).innerText();
  for (let word = 1; word <= 30; word++) expect(text.match(new RegExp(`\\bw${word}\\b`, "g"))).toHaveLength(1);
  // What was put together from the stream is what a fresh page gets from the log.
  const before = await app.conversation();
  await app.page.reload();
  await app.live(id);
  await expect.poll(() => app.conversation()).toBe(before);
  expect((await strict.state()).violations).toEqual([]);
});
