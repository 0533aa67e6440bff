import { expectAccessible } from "./support/axe";
import { expect, picture, test } from "./support/test";
import { Threadline } from "./support/threadline";

test("pin, filter, and see how much is hidden", async ({ page, server }) => {
  const ids: string[] = [];
  for (const task of ["alpha task", "bravo task", "charlie task"]) ids.push(await server.run({ task }));
  const [alpha = "", bravo = "", charlie = ""] = ids;
  const app = await Threadline.open(page, server);
  const rows = app.byId("session-row");
  await expect(rows).toHaveCount(3);
  await expect(rows.first()).toHaveAttribute("data-session-id", charlie);
  await app.row(alpha).hover();
  await app.row(alpha).getByTestId("pin").click();
  await expect(rows.first()).toHaveAttribute("data-session-id", alpha);
  await expect(app.row(alpha)).toContainText("Pinned");
  await page.reload();
  await expect(rows.first()).toHaveAttribute("data-session-id", alpha);

  await app.row(bravo).hover();
  await app.row(bravo).getByTestId("archive").click();
  await expect(rows).toHaveCount(2);
  await expect(app.byId("list-footer")).toContainText("2 sessions");
  await expect(app.byId("hidden-count")).toHaveText("1 archived");
  await app.byId("filter-status").selectOption("running");
  await expect(rows).toHaveCount(0);
  await expect(page.getByText("No session is left by these filters.")).toBeVisible();
  await expect(app.byId("hidden-count")).toHaveText("3 hidden by filter");
  await expectAccessible(page);
  await app.byId("list-footer").getByRole("button", { name: "Show all" }).click();
  await expect(rows).toHaveCount(3);
  await app.byId("filter-folder").selectOption({ index: 1 });
  await expect(rows).toHaveCount(3);
});

test("a search marks what it has found, also beyond the title", async ({ page, server }) => {
  const id = await server.run({ task: `needle in ${"a long haystack ".repeat(40)}` });
  await server.run({ task: "something else" });
  const app = await Threadline.open(page, server);
  await app.row(id).hover();
  await app.row(id).getByTestId("rename").click();
  await app.byId("rename-field").fill("Named otherwise");
  await app.byId("rename-field").press("Enter");
  await app.byId("search").fill("needle OTHER");
  await expect(app.byId("session-row")).toHaveCount(1);
  await expect(app.row(id).locator("mark")).toHaveText(["other", "needle"]);
  await expect(app.row(id).locator(".row-found")).toContainText("prompt");
  await picture(page, "search");
  await app.byId("search").press("Escape");
  await expect(app.byId("search")).toHaveValue("");
  await expect(app.byId("session-row")).toHaveCount(2);
});

test("several sessions are archived and deleted at once, and deleting is undone at once", async ({ page, server }) => {
  for (let at = 0; at < 5; at++) await server.run({ task: `task ${at}` });
  const app = await Threadline.open(page, server);
  const rows = app.byId("session-row");
  await expect(rows).toHaveCount(5);
  await page.locator("body").press("j");
  await page.keyboard.press("x");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("x");
  await expect(app.byId("selection")).toContainText("2 picked");
  await picture(page, "picked");
  await expectAccessible(page);
  await app.byId("selection").getByRole("button", { name: "Delete" }).click();
  await expect(rows).toHaveCount(3);
  await expect(app.byId("undo-toast")).toContainText("2 sessions");
  await app.byId("undo").click();
  await expect(rows).toHaveCount(5);
  await rows.nth(0).locator(".row-main").click({ modifiers: ["Control"] });
  await rows.nth(3).locator(".row-main").click({ modifiers: ["Control"] });
  await app.byId("selection").getByRole("button", { name: "Archive" }).click();
  await expect(rows).toHaveCount(3);
  await expect(app.byId("selection")).toHaveCount(0);
  expect((await server.sessions("true")).length).toBe(2);
});

test("the list by keyboard alone: ends, rename, pin, delete", async ({ page, server }) => {
  const ids: string[] = [];
  for (let at = 0; at < 30; at++) ids.push(await server.run({ task: `task ${at}` }));
  const app = await Threadline.open(page, server);
  const oldest = app.row(ids[0] ?? "");
  await expect(app.row(ids.at(-1) ?? "")).toBeVisible();
  await page.locator("body").press("j");
  await page.keyboard.press("End");
  await expect(oldest.locator(".row-main")).toBeFocused();
  await page.keyboard.press("F2");
  await expect(app.byId("rename-field")).toBeFocused();
  await app.byId("rename-field").fill("The oldest");
  await page.keyboard.press("Enter");
  await expect(oldest).toContainText("The oldest");
  await expect(oldest.locator(".row-main")).toBeFocused();
  await page.keyboard.press("p");
  await expect(page.locator(`[data-at="29"]`)).not.toContainText("The oldest");
  // It has gone to the top; the row that is in its place now has the focus.
  await expect(page.locator(`[data-at="29"] .row-main`)).toBeFocused();
  await page.keyboard.press("Home");
  await expect(app.byId("session-row").first()).toContainText("The oldest");
  await expect(oldest.locator(".row-main")).toBeFocused();
  await page.keyboard.press("Delete");
  await expect(oldest).toHaveCount(0);
  await expect(page.locator(`[data-at="0"] .row-main`)).toBeFocused();
  await app.byId("undo").click();
  await expect(oldest).toBeVisible();
});

test("another browser's sessions, titles and runs appear by themselves", async ({ other, strict, strictApp: app, strictServer: server }) => {
  const second = await other(server);
  await strict.script({ when: { user: "from elsewhere" }, steps: [{ text: "I work" }, { gate: "g" }, { text: "." }] });
  await second.send("from elsewhere");
  await strict.reached("g");
  const id = await second.sessionId();
  const soon = { timeout: 5000 };
  await expect(app.row(id)).toHaveAttribute("data-status", "running", soon);
  await second.row(id).hover();
  await second.row(id).getByTestId("rename").click();
  await second.byId("rename-field").fill("Renamed elsewhere");
  await second.byId("rename-field").press("Enter");
  await expect(app.row(id)).toContainText("Renamed elsewhere", soon);
  await app.openSession(id);
  await expect(app.page).toHaveTitle("Renamed elsewhere - Threadline");
  // The run needs no client.
  await second.page.close();
  await app.page.goto("about:blank");
  await strict.open("g");
  await expect.poll(async () => (await server.sessions())[0]?.status).toBe("idle");
  const back = await Threadline.open(app.page, server);
  await expect(back.row(id)).toHaveAttribute("data-status", "idle");
});

test("of all tabs one listens for changes; when it closes another takes over", async ({ context, server }) => {
  const listening: string[] = [];
  context.on("request", (request) => {
    if (request.url().endsWith("/api/agent/changes")) listening.push(request.url());
  });
  const first = await Threadline.open(await context.newPage(), server);
  const second = await Threadline.open(await context.newPage(), server);
  const third = await Threadline.open(await context.newPage(), server);
  const seen = { timeout: 5000 };
  const one = await server.run({ task: "the first" });
  for (const app of [first, second, third]) await expect(app.row(one)).toBeVisible(seen);
  expect(listening).toHaveLength(1);
  await first.page.close();
  await expect.poll(() => listening.length).toBe(2);
  const two = await server.run({ task: "the second" });
  for (const app of [second, third]) await expect(app.row(two)).toBeVisible(seen);
});

test("the palette finds sessions and commands, and gives the focus back", async ({ page, server }) => {
  const id = await server.run({ task: "the needle session" });
  await server.run({ task: "another" });
  const app = await Threadline.open(page, server);
  await app.byId("composer").focus();
  await page.keyboard.press("Control+k");
  await expect(app.byId("palette-field")).toBeFocused();
  await expect(app.byId("palette")).toContainText("another");
  await picture(page, "palette");
  await expectAccessible(page);
  await page.keyboard.press("Escape");
  await expect(app.byId("palette")).toHaveCount(0);
  await expect(app.byId("composer")).toBeFocused();

  await page.keyboard.press("Control+k");
  await page.keyboard.type("needle");
  await expect(app.byId("palette-option")).toHaveCount(1);
  await page.keyboard.press("Enter");
  await app.live(id);

  await page.keyboard.press("Control+k");
  await page.keyboard.type("theme dark");
  await page.keyboard.press("Enter");
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("no such thing");
  await expect(app.byId("palette")).toContainText("Nothing is called that.");
});

test("help and settings: by key, kept in this browser, shared by its tabs", async ({ context, page, server }) => {
  await server.run({ task: "one" });
  const app = await Threadline.open(page, server);
  await page.locator("body").press("?");
  await expect(app.byId("help")).toContainText("Find a session or a command");
  await picture(page, "help");
  await expectAccessible(page);
  await page.keyboard.press("Escape");
  const row = app.byId("session-row");
  const high = (await row.boundingBox())?.height ?? 0;
  const second = await Threadline.open(await context.newPage(), server);
  await app.byId("open-settings").click();
  await expectAccessible(page);
  await app.page.getByLabel("Compact").check();
  await app.page.getByLabel("Dark").check();
  await picture(page, "settings");
  await expectAccessible(page);
  await page.keyboard.press("Escape");
  expect((await row.boundingBox())?.height).toBeLessThan(high);
  await expect(second.page.locator("html")).toHaveAttribute("data-theme", "dark");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-density", "compact");
});

test("the desktop is told, when wanted, what waits and what has ended while nobody looks", async ({ page, context, strict, strictServer: server }) => {
  await context.grantPermissions(["notifications"], { origin: server.origin });
  await page.addInitScript(() => {
    const told: string[] = [];
    class Told extends EventTarget {
      static permission = "default";
      static requestPermission(): Promise<string> {
        Told.permission = "granted";
        return Promise.resolve("granted");
      }
      constructor(what: string, options: { body: string }) {
        super();
        told.push(`${what}: ${options.body}`);
      }
      close(): void {}
    }
    Object.assign(window, { Notification: Told, told });
    Object.defineProperty(document, "visibilityState", { get: () => (window as { away?: boolean }).away ? "hidden" : "visible" });
  });
  const app = await Threadline.open(page, server);
  const told = (): Promise<string[]> => page.evaluate(() => (window as unknown as { told: string[] }).told);
  await app.byId("open-settings").click();
  await app.byId("notify").click();
  await expect(app.byId("notify")).toHaveAttribute("aria-pressed", "true");
  await page.keyboard.press("Escape");
  await strict.script(
    { when: { user: "mark it" }, steps: [{ toolCall: { id: "c", name: "shell", arguments: { command: "echo hi > x" } } }] },
    { when: { last: "exit code 0" }, text: "Marked." },
  );
  await app.send("mark it");
  await expect(app.byId("approve")).toBeVisible();
  await expect(app.byId("open-tray").first()).toHaveAttribute("data-waiting", "1");
  expect(await told()).toEqual([]);
  const ended = page.waitForResponse(
    async (answer) =>
      answer.url().includes("pinned=false") &&
      ((await answer.json()) as { sessions: { status: string }[] }).sessions.every(({ status }) => status === "idle"),
  );
  await app.byId("approve").click();
  await app.ended(1);
  // The row shows what the conversation knows before the list has heard of it.
  await (await ended).finished();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await expect(app.row(await app.sessionId())).toHaveAttribute("data-status", "idle");
  expect(await told()).toEqual([]);
  await page.evaluate(() => ((window as { away?: boolean }).away = true));
  await strict.script(
    { when: { user: "mark again" }, steps: [{ toolCall: { id: "d", name: "shell", arguments: { command: "echo ho > x" } } }] },
    { when: { last: "exit code 0" }, text: "Again." },
  );
  await app.send("mark again");
  await expect.poll(told).toEqual(["Needs approval: shell: mark again"]);
  await app.byId("approve").click();
  await expect.poll(told).toEqual(["Needs approval: shell: mark again", "The run has finished: mark again"]);
});

test.describe("100,000 sessions", () => {
  test("any place is a scroll away, a few rows exist, and no task is long", async ({ page, server }) => {
    const all = 100_000;
    const asked: string[] = [];
    await page.route("**/api/agent/sessions?*", (route) => {
      const params = new URL(route.request().url()).searchParams;
      asked.push(String(params));
      const skip = Number(params.get("skip") ?? 0);
      const limit = Number(params.get("limit"));
      const pinned = params.get("pinned") === "true";
      const count = pinned ? 0 : Math.max(0, Math.min(limit, all - skip));
      const sessions = Array.from({ length: count }, (_, at) => row(skip + at));
      const counts = params.get("count") === "1" ? { counts: { shown: all, all } } : {};
      return route.fulfill({ json: { sessions, nextCursor: null, rebuilding: false, ...counts } });
    });
    await page.addInitScript(() => {
      const long: number[] = [];
      new PerformanceObserver((list) => long.push(...list.getEntries().map((entry) => entry.duration))).observe({
        type: "longtask",
      });
      Object.assign(window, { long });
    });
    const app = await Threadline.open(page, server);
    await expect(app.byId("list-footer")).toContainText("100,000 sessions");
    const scroller = page.locator(".session-scroll");
    const start = Date.now();
    await scroller.evaluate((list) => list.scrollTo(0, list.scrollHeight));
    await expect(app.row(idOf(all - 1))).toBeVisible();
    const took = Date.now() - start;
    for (let step = 0; step < 40; step++) {
      await scroller.evaluate((list, at) => list.scrollTo(0, (list.scrollHeight * at) / 40), step);
    }
    await page.locator("body").press("j");
    await page.keyboard.press("Home");
    await expect(app.row(idOf(0)).locator(".row-main")).toBeFocused();
    expect(await app.byId("session-row").count()).toBeLessThan(60);
    expect(asked.length).toBeLessThan(150);
    const long = await page.evaluate(() => (window as unknown as { long: number[] }).long);
    const heap = await page.evaluate(() => (performance as unknown as { memory: { usedJSHeapSize: number } }).memory.usedJSHeapSize);
    // Reported, not asserted: they depend on the machine.
    console.log(`list of ${all}: last row after ${took} ms, ${asked.length} requests, long tasks ${JSON.stringify(long)}, heap ${Math.round(heap / 1e6)} MB`);
  });
});

const idOf = (at: number): string => `01a00000-0000-7000-8000-${String(at).padStart(12, "0")}`;

function row(at: number) {
  return {
    id: idOf(at),
    title: `Session number ${at}`,
    firstPrompt: "x",
    createdAt: 1_764_000_000_000 - at * 1000,
    updatedAt: 1_764_000_000_000 - at * 1000,
    turns: 1,
    events: 5,
    status: "idle",
    cwd: "/work",
    model: null,
    usage: { inputTokens: 1, outputTokens: 1 },
    bytes: 100,
    archived: false,
    pinned: false,
    tags: [],
    revision: 0,
    parent: null,
    durability: "step",
    error: null,
  };
}

test("very long texts and many tags stay in their places", async ({ page, server }) => {
  const long = "averyveryverylongwordwithoutanyspace".repeat(280);
  const id = await server.run({ task: `${long}\n${"line\n".repeat(300)}` });
  const app = await Threadline.open(page, server);
  await app.openSession(id);
  const fits = (): Promise<boolean> => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
  expect(await fits()).toBe(true);
  await app.continueSession(id);
  await app.byId("composer").fill(long);
  expect(await fits()).toBe(true);
  await app.turn(1).hover();
  await app.turn(1).getByTestId("turn-edit").click();
  await expect(app.byId("branch-text")).toBeFocused();
  expect(await fits()).toBe(true);
  await picture(page, "long-texts");
  await expectAccessible(page);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await expect(app.byId("palette-option").first()).toContainText("averyvery");
  await picture(page, "long-palette");
});

test.describe("dark phone", () => {
  test.use({ viewport: { width: 390, height: 844 }, hasTouch: true, colorScheme: "dark" });

  test("tray, queue, palette, settings and comparison fit, and axe finds nothing", async ({ page, strict, strictServer: server }) => {
    const app = await Threadline.open(page, server);
    const check = async (name: string): Promise<void> => {
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth)).toBe(true);
      await expectAccessible(page);
      await picture(page, `dark-phone-${name}`);
    };
    await strict.script({ when: { user: "start" }, text: "Started." });
    await app.send("start");
    await app.ended(1);
    const parent = await app.sessionId();
    await app.turn(1).getByTestId("turn-fork").tap();
    await check("fork");
    await app.byId("branch-do").tap();
    await expect.poll(() => app.sessionId()).not.toBe(parent);
    await app.live(await app.sessionId());
    await app.byId("open-compare").tap();
    await expect(app.byId("compare")).toContainText("1 turn in common");
    await check("compare");
    await page.keyboard.press("Escape");
    await strict.script({
      when: { user: "mark it" },
      steps: [{ toolCall: { id: "c", name: "shell", arguments: { command: "echo hi > x" } } }],
    });
    await app.send("mark it");
    await expect(app.byId("approve")).toBeVisible();
    await app.send("and then the other thing, as we have said before");
    await expect(app.byId("queued")).toHaveCount(1);
    await check("queue");
    await page.locator(".header-tray").getByTestId("open-tray").tap();
    await expect(app.byId("tray-entry")).toBeVisible();
    await check("tray");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await expect(app.byId("palette-option").first()).toBeVisible();
    await check("palette");
    await page.keyboard.press("Escape");
    await page.getByRole("navigation", { name: "Parts of the page" }).getByRole("button", { name: "Sessions" }).tap();
    await check("list");
    await app.byId("open-settings").tap();
    await check("settings");
  });
});
