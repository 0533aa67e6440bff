import { readFileSync, writeFileSync } from "node:fs";
import { expectAccessible } from "./support/axe";
import { alive } from "./support/processes";
import { words } from "./support/strict";
import { expect, picture, test } from "./support/test";

test("kill -9 in a tool call: the page recovers, says unknown, and the session goes on", async ({
  place,
  strict,
  strictApp: app,
  strictServer: server,
}) => {
  await strict.script({
    when: { user: "long job" },
    steps: [
      { text: "I start it." },
      {
        toolCall: {
          id: "call_long",
          name: "shell",
          arguments: { command: "echo $$ > pid; echo begun; sleep 300" },
        },
      },
      { toolCall: { id: "call_after", name: "shell", arguments: { command: "touch after.txt" } } },
    ],
  });
  await app.send("do the long job", { approval: "never" });
  await expect(app.card("call_long").getByLabel("Output so far")).toHaveText("begun");
  const id = await app.sessionId();
  const child = Number(readFileSync(place.file("pid"), "utf8"));
  const logBefore = readFileSync(place.log(id));
  await server.kill();
  await expect(app.byId("connection")).toHaveAttribute("data-state", "reconnecting");
  await expect.poll(() => alive(child)).toBe(false);

  await server.restart();
  await app.live(id);
  await expect(app.card("call_long")).toHaveAttribute("data-outcome", "unknown");
  await expect(app.card("call_long")).toContainText("Outcome unknown");
  await expect(app.card("call_long").locator(".tool-time")).toHaveCount(0);
  await expect(app.card("call_long").locator(".partial-output")).toContainText("begun");
  await expect(app.card("call_after")).toHaveAttribute("data-outcome", "not_started");
  await app.ended(1, "interrupted");
  await expect(app.byId("stop")).toHaveCount(0);
  await picture(app.page, "unknown-outcome");

  await strict.script(
    {
      when: { user: "look first" },
      steps: [{ text: "I look." }, { toolCall: { id: "call_look", name: "ls", arguments: {} } }],
    },
    { when: { last: "pid" }, text: "The job had begun." },
  );
  await app.continueSession(id);
  await app.send("look first, then tell me");
  await app.ended(2);
  await expect(app.turn(2)).toContainText("The job had begun.");
  await expect(app.card("call_look")).toHaveAttribute("data-outcome", "ok");
  await expect(app.card("call_long")).toHaveAttribute("data-outcome", "unknown");
  await expect(app.card("call_long").locator(".partial-output")).toContainText("begun");
  expect(await app.sessionId()).toBe(id);
  await app.expectExactlyOnce(id);

  const { requests, violations } = await strict.state();
  expect(violations).toEqual([]);
  const sent = JSON.stringify(requests.at(-1)?.json.messages);
  expect(sent).toContain("unknown");
  // Nothing that was in the log has changed.
  expect(readFileSync(place.log(id)).subarray(0, logBefore.length)).toEqual(logBefore);

  await app.byId("tab-debug").click();
  await expect(app.byId("debug-step")).toHaveCount(3);
  for (const fingerprint of await app.byId("fingerprint").all()) {
    await expect(fingerprint).toHaveAttribute("data-match", "true");
  }
  await app.byId("debug-step").first().getByRole("button").first().click();
  await expect(app.byId("debug-step").first()).toContainText("do the long job");
  // The opened step makes room for itself.
  await expect(async () => {
    const first = await app.byId("debug-step").first().boundingBox();
    const second = await app.byId("debug-step").nth(1).boundingBox();
    if (second !== null) expect(second.y).toBeGreaterThanOrEqual((first?.y ?? 0) + (first?.height ?? 0) - 1);
  }).toPass();
  await picture(app.page, "debug");
});

test("kill -9 in the middle of an answer: the partial text stays and the session goes on", async ({
  strict,
  strictApp: app,
  strictServer: server,
}) => {
  await strict.script({ when: { user: "talk" }, steps: [{ text: words(1, 8) }, { gate: "g" }, { text: words(9, 16) }] });
  await app.send("talk");
  await strict.reached("g");
  await expect(app.turn(1)).toContainText("w8");
  const id = await app.sessionId();
  await server.kill();
  await server.restart();
  await app.ended(1, "interrupted");
  const answer = app.turn(1).getByTestId("item-assistant");
  await expect(answer).toContainText("w8");
  await expect(answer).toHaveAttribute("data-interrupted", "true");
  await strict.script({ when: { user: "and now" }, text: "It goes on." });
  await app.continueSession(id);
  await app.send("and now");
  await app.ended(2);
  await expect(app.turn(2)).toContainText("It goes on.");
  await app.expectExactlyOnce(id);
  expect((await strict.state()).violations).toEqual([]);
});

test("a damaged session: it says what is wrong, opens as far as it goes, and is not continued", async ({ app, place, server }) => {
  await app.send("the first turn");
  await app.ended(1);
  const id = await app.sessionId();
  await app.continueSession(id);
  await app.send("the second turn");
  await app.ended(2);

  await server.kill();
  const path = place.log(id);
  const bytes = readFileSync(path);
  // A letter inside the second turn's text: the line stays JSON, only its checksum is wrong.
  const at = bytes.indexOf("the second turn");
  bytes[at + 4] = bytes.readUInt8(at + 4) ^ 0x01;
  writeFileSync(path, bytes);
  await server.restart();
  await app.page.reload();

  await expect(app.row(id)).toHaveAttribute("data-status", "damaged");
  const reason = app.row(id).locator(".row-reason");
  await expect(reason).toHaveText(/^log\.jsonl is damaged at byte \d+/);
  const damage = app.byId("error-banner");
  await expect(damage).toHaveCount(1);
  await expect(damage).toContainText("damaged: the checksum does not match");
  await expect(damage).toContainText("log.jsonl");
  await expect(damage).toContainText(/event \d+/);
  await expect(app.turn(1)).toContainText("the first turn");
  await expect(app.turn(2)).toContainText("The log is damaged here");
  await expect(app.byId("continue-session")).toBeDisabled();
  await picture(app.page, "damaged");
  await expectAccessible(app.page);

  // The reload has kept what was to be continued; the server has the last word.
  await expect(app.banner).toBeVisible();
  await app.send("go on all the same");
  const refused = app.page.locator(".composer").getByTestId("error-banner");
  await expect(refused).toContainText("damaged");
  await expect(app.byId("composer")).toHaveValue("go on all the same");
  expect(readFileSync(path).equals(bytes)).toBe(true);
});
