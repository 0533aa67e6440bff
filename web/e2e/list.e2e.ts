import { expect, picture, test } from "./support/test";
import { Threadline } from "./support/threadline";

test("search, rename, archive and restore", async ({ page, server }) => {
  const ids = [];
  for (const task of ["alpha task", "bravo task", "charlie task"]) ids.push(await server.run({ task }));
  const [alpha = "", bravo = "", charlie = ""] = ids;
  const app = await Threadline.open(page, server);
  await expect(app.byId("session-row")).toHaveCount(3);

  await app.byId("search").fill("bravo");
  await expect(app.byId("session-row")).toHaveCount(1);
  await expect(app.row(bravo)).toBeVisible();
  await app.byId("search").fill("nothing like this");
  await expect(page.getByText('No session matches "nothing like this".')).toBeVisible();
  await app.byId("search").fill("");
  await expect(app.byId("session-row")).toHaveCount(3);

  await app.row(alpha).hover();
  await app.row(alpha).getByTestId("rename").click();
  await app.byId("rename-field").fill("Groceries & more");
  await app.byId("rename-field").press("Enter");
  await expect(app.row(alpha)).toContainText("Groceries & more");
  await expect.poll(async () => (await server.sessions()).find(({ id }) => id === alpha)?.title).toBe("Groceries & more");
  await app.row(alpha).getByTestId("rename").click();
  await app.byId("rename-field").fill("never saved");
  await app.byId("rename-field").press("Escape");
  await expect(app.row(alpha)).toContainText("Groceries & more");
  await app.byId("search").fill("groceries");
  await expect(app.byId("session-row")).toHaveCount(1);
  await app.byId("search").fill("");

  await app.row(charlie).hover();
  await app.row(charlie).getByTestId("archive").click();
  await expect(app.row(charlie)).toHaveCount(0);
  const which = page.getByLabel("Which sessions to list");
  await which.selectOption("true");
  await expect(app.byId("session-row")).toHaveCount(1);
  await app.row(charlie).getByTestId("archive").click();
  await expect(app.row(charlie)).toHaveCount(0);
  await which.selectOption("false");
  await expect(app.byId("session-row")).toHaveCount(3);
});

test("a rename that somebody else overtook does not overwrite theirs, and says so", async ({ page, other, server }) => {
  const id = await server.run({ task: "contested" });
  const app = await Threadline.open(page, server);
  await expect(app.row(id)).toBeVisible();
  // From here on this page's list learns nothing new by itself.
  await page.route("**/api/agent/sessions?*", (route) => route.abort());
  const second = await other(server);
  await second.row(id).hover();
  await second.row(id).getByTestId("rename").click();
  await second.byId("rename-field").fill("theirs");
  await second.byId("rename-field").press("Enter");
  await expect(second.row(id)).toContainText("theirs");

  await app.row(id).hover();
  await app.row(id).getByTestId("rename").click();
  await app.byId("rename-field").fill("mine");
  await app.byId("rename-field").press("Enter");
  await expect(app.row(id)).toContainText("Changed elsewhere in the meantime");
  await expect(app.row(id)).toContainText("theirs");
  expect((await server.sessions())[0]?.title).toBe("theirs");
});

test("delete can be undone; else it is carried out, also when the page is left", async ({ page, server }) => {
  const kept = await server.run({ task: "keep me" });
  const gone = await server.run({ task: "drop me" });
  const left = await server.run({ task: "drop me on leaving" });
  const app = await Threadline.open(page, server);
  const remove = async (id: string): Promise<void> => {
    await app.row(id).hover();
    await app.row(id).getByTestId("delete").click();
    await expect(app.row(id)).toHaveCount(0);
  };
  const stored = async (): Promise<string[]> => (await server.sessions()).map(({ id }) => id).sort();

  await remove(kept);
  await app.byId("undo").click();
  await expect(app.row(kept)).toBeVisible();
  await expect(app.byId("undo-toast")).toHaveCount(0);
  await remove(gone);
  expect(await stored()).toEqual([kept, gone, left].sort());
  await expect.poll(stored).toEqual([kept, left].sort());
  await expect(app.byId("undo-toast")).toHaveCount(0);
  await remove(left);
  await page.goto("about:blank");
  await expect.poll(stored).toEqual([kept]);
});

test("the list by keyboard", async ({ page, server }) => {
  const first = await server.run({ task: "the older" });
  const second = await server.run({ task: "the newer" });
  const app = await Threadline.open(page, server);
  await expect(app.byId("session-row")).toHaveCount(2);
  await page.locator("body").press("/");
  await expect(app.byId("search")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(app.row(second).locator(".row-main")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(app.row(first).locator(".row-main")).toBeFocused();
  await page.keyboard.press("k");
  await expect(app.row(second).locator(".row-main")).toBeFocused();
  await page.keyboard.press("j");
  await expect(app.row(first).locator(".row-main")).toBeFocused();
  await page.keyboard.press("Enter");
  await app.live(first);
  await expect(app.turn(1)).toContainText("the older");
  await page.keyboard.press("Tab");
  await expect(app.row(first).getByTestId("rename")).toBeFocused();

  // The composer: Shift+Enter makes a line, Enter sends.
  await app.byId("composer").focus();
  await page.keyboard.type("line one");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("line two");
  await page.keyboard.press("Enter");
  await app.ended(1);
  await expect(app.turn(1).getByTestId("item-user").last()).toContainText("line one\nline two");
});

test("the browser's back and forward buttons move between sessions", async ({ page, server }) => {
  const first = await server.run({ task: "the older" });
  const second = await server.run({ task: "the newer" });
  const app = await Threadline.open(page, server);
  await app.openSession(first);
  await app.openSession(second);
  await page.goBack();
  await app.live(first);
  await expect(app.turn(1)).toContainText("the older");
  await page.goForward();
  await app.live(second);
  await expect(app.turn(1)).toContainText("the newer");
});

test("links to sessions: a known one opens, an unknown one and a broken one say what is wrong", async ({ page, server }) => {
  const id = await server.run({ task: "linked" });
  const app = await Threadline.open(page, server);
  const link = async (hash: string): Promise<void> => {
    await page.goto("about:blank");
    await page.goto(`${server.origin}/${hash}`);
  };
  await link(`#/session/${id}`);
  await expect(app.turn(1)).toContainText("linked");
  const error = page.locator(".turns").getByTestId("error-banner");
  await link("#/session/01a00000-0000-7000-8000-000000000000");
  await expect(error).toContainText(/session/i);
  await expect(error).toHaveAttribute("data-code", /not_found/);
  // What is not there cannot be continued.
  await expect(app.byId("continue-viewed")).toHaveCount(0);
  await picture(page, "unknown-session");
  await link("#/session/not-an-id");
  await expect(error).toBeVisible();
  // The page goes on working.
  await app.send("hello");
  await app.ended(1);
  await expect(error).toHaveCount(0);
});

test("many sessions: the list scrolls through all of them", async ({ page, server }) => {
  const ids: string[] = [];
  for (let at = 0; at < 70; at++) ids.push(await server.run({ task: `task number ${at}` }));
  const app = await Threadline.open(page, server);
  await expect(app.row(ids.at(-1) ?? "")).toBeVisible();
  await expect(async () => {
    await page.locator(".session-scroll").evaluate((list) => list.scrollTo(0, list.scrollHeight));
    await expect(app.row(ids[0] ?? "")).toBeVisible({ timeout: 500 });
  }).toPass();
  // Only what is in sight exists.
  expect(await app.byId("session-row").count()).toBeLessThan(40);
});
