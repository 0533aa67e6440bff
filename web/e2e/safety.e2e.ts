import { writeFileSync } from "node:fs";
import { expectAccessible } from "./support/axe";
import { expect, picture, test } from "./support/test";

const hostile = [
  "<script>alert('script')</script>",
  "<img src=x onerror=\"alert('img')\">",
  '<img src="http://example.com/pixel.png">',
  "<svg onload=alert('svg')></svg>",
  "<a href=\"javascript:alert('a')\">click</a>",
  "</pre></div><iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
  "\u001b[31mred\u001b[0m \u001b]8;;javascript:alert('osc')\u0007link\u001b]8;;\u0007 \u001b[2J",
  "user\u202egnp.exe\u202c zero\u200bwidth \u0000 nul",
].join("\n");

const markdown = [
  "[run me](javascript:alert('md')) and [data](data:text/html,<script>alert(1)</script>)",
  "![pixel](http://example.com/answer.png)",
  "<https://example.com/auto>",
  "[relative](/api/agent/sessions)",
  hostile,
].join("\n\n");

test("hostile text from a tool and a model is shown and does nothing", async ({ place, strict, strictApp: app, page }) => {
  writeFileSync(place.file("hostile.txt"), hostile);
  await strict.script(
    {
      when: { user: "read" },
      steps: [{ toolCall: { id: "call_1", name: "shell", arguments: { command: "cat hostile.txt" } } }],
    },
    { steps: [{ reasoning: hostile.replace("\u0000", "") }, { text: markdown.replace("\u0000", "") }] },
  );
  await app.send(`read this: ${hostile.replace("\u0000", "")}`, { approval: "never" });
  await app.ended(1);
  const id = await app.sessionId();
  await expect(app.card("call_1")).toContainText("<script>alert('script')</script>");
  await expect(app.turn(1)).toContainText("run me");

  const found = await page.evaluate(() => {
    const all = [...document.querySelectorAll("body *")];
    return {
      foreign: all.filter((element) => /^(script|iframe|object|embed|img|form\[action\])$/i.test(element.tagName)).map((e) => e.outerHTML),
      handlers: all.flatMap((element) => element.getAttributeNames().filter((name) => name.startsWith("on"))),
      // The page's own links to its turns have a class that no text can give itself.
      links: [...document.querySelectorAll("a[href]:not(.turn-link)")].map((link) => ({
        href: link.getAttribute("href"),
        rel: link.getAttribute("rel"),
      })),
      // What a person may copy from a tool's output into a terminal holds no orders for it.
      hidden: /[\u200b\u202a-\u202e\u2066-\u2069]/.test(document.querySelector(".turns")?.textContent ?? ""),
      escapes: [...document.querySelectorAll<HTMLElement>(".tool-card")].some((card) =>
        /[\u001b\u0007\u0000\u009b]/.test(card.innerText),
      ),
    };
  });
  expect(found.foreign).toEqual([]);
  expect(found.handlers).toEqual([]);
  // The page's own links: to the composer, and the session as a file.
  const own = /^(#composer-text|\/api\/agent\/sessions\/[0-9a-f-]+\/export\?format=\w+)$/;
  for (const { href, rel } of found.links.filter(({ href }) => !own.test(href ?? ""))) {
    expect(href).toMatch(/^https?:\/\/example\.com\//);
    expect(rel).toContain("noopener");
    expect(rel).toContain("noreferrer");
  }
  expect(found.escapes).toBe(false);
  expect(found.hidden).toBe(false);
  await expect(app.turn(1).getByTestId("item-assistant").last()).toContainText("user\\u202egnp.exe\\u202c zero\\u200bwidth");
  await expect(app.turn(1).getByRole("link", { name: "Image: pixel" })).toContainText("(example.com)");
  await picture(page, "hostile");

  // The same from the snapshot, in the list, in the log and in the debug panel.
  await page.reload();
  await app.live(id);
  await expect(app.turn(1)).toContainText("run me");
  const row = page.locator('[data-testid="log-row"][data-type="tool/result"] button').first();
  await row.click();
  await expect(page.getByLabel(/Event \d+ as JSON/)).toContainText("\\u202e");
  await app.byId("tab-debug").click();
  await app.byId("debug-step").last().getByRole("button").first().click();
  await expect(app.byId("debug-step").last()).toContainText("alert");
  await expect(page).toHaveTitle(/Threadline/);
});

test("a line of ten megabytes is shown in windows, and hangs nothing", async ({ strict, strictApp: app, page }) => {
  const command = "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo the end";
  await strict.script(
    { when: { user: "print" }, steps: [{ toolCall: { id: "call_1", name: "shell", arguments: { command } } }] },
    { steps: [{ text: `One line: ${"y".repeat(300_000)}` }] },
  );
  await app.send("print it", { approval: "never" });
  await app.ended(1);
  const card = app.card("call_1");
  const onPage = (): Promise<number> => page.evaluate(() => document.body.textContent?.length ?? 0);
  expect(await onPage()).toBeLessThan(300_000);
  await card.getByRole("button", { name: "Show all of the output" }).click();
  await expect(card.getByTestId("viewer")).toHaveAttribute("data-phase", "ready");
  await expect(card).toContainText("9.5 MiB");
  const frame = card.locator(".viewer-scroll");
  await expect(frame).toContainText("xxxxxxxxxx");
  expect(await frame.locator(".viewer-row").count()).toBeLessThan(100);
  await frame.evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await expect(frame).toContainText("the end");
  expect(await onPage()).toBeLessThan(330_000);
  await expect(page.locator(".turns")).toContainText("The rest of this very long reply");
  expect(await app.turn(1).getByTestId("item-assistant").last().evaluate((said) => said.textContent?.length ?? 0)).toBeLessThan(25_000);
  await picture(page, "ten-megabytes");
});

test("an approval shows what would really run", async ({ strict, strictApp: app }) => {
  const command = "echo safe \u202e# tnemmoc a si siht\u202c\u200b; touch made.txt";
  await strict.script({
    when: { user: "try" },
    steps: [{ toolCall: { id: "call_1", name: "shell", arguments: { command } } }],
  });
  await app.send("try");
  await expect(app.byId("approve")).toBeVisible();
  await expect(app.card("call_1").getByLabel(/Arguments of/)).toContainText("\\u202e");
  await expect(app.card("call_1").getByLabel(/Arguments of/)).toContainText("\\u200b");
  expect(await app.card("call_1").innerText()).not.toMatch(/[\u200b\u202a-\u202e]/);
  await app.byId("deny").click();
  await app.ended(1);
});

for (const scheme of ["light", "dark"] as const) {
  test(`axe finds nothing on the main screens, ${scheme}`, async ({ app, page }) => {
    await page.emulateMedia({ colorScheme: scheme });
    await expectAccessible(page);
    await app.send("Show me **what** is here, then fail:\n$ ls\n$ cat missing.txt\n> nothing {}");
    await app.ended(1);
    const id = await app.sessionId();
    await app.continueSession(id);
    await expectAccessible(page);
    await picture(page, scheme);
    await app.byId("tab-debug").click();
    await app.byId("debug-step").first().getByRole("button").first().click();
    await expect(app.byId("fingerprint").first()).toHaveAttribute("data-match", "true");
    await expectAccessible(page);
    await app.send("$ touch asked.txt");
    await expect(app.byId("approve")).toBeVisible();
    await expectAccessible(page);
    await picture(page, `${scheme}-approval`);
    await app.byId("stop").click();
    await app.ended(2, "cancelled");
    await app.row(id).getByTestId("delete").click();
    await expect(app.byId("undo")).toBeVisible();
    await expectAccessible(page);
    await app.byId("undo").click();
  });
}

test("the theme button wins over the system and is remembered", async ({ app, page }) => {
  const background = (): Promise<string> =>
    page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await app.byId("theme").click();
  expect(await background()).toBe(light);
  await app.byId("theme").click();
  await expect.poll(background).not.toBe(light);
  await page.reload();
  await expect.poll(background).not.toBe(light);
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
});

test.describe("phone", () => {
  test.use({ viewport: { width: 390, height: 844 }, hasTouch: true });

  test("everything is there, fits, and axe finds nothing", async ({ app, page }) => {
    const fits = (): Promise<boolean> =>
      page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
    await expectAccessible(page);
    await app.send("Show me what is here:\n$ ls\nand a-very-long-word-".padEnd(400, "x"));
    await app.ended(1);
    expect(await fits()).toBe(true);
    await expectAccessible(page);
    await picture(page, "phone");
    const bar = page.getByRole("navigation", { name: "Parts of the page" });
    await bar.getByRole("button", { name: "Sessions" }).tap();
    await expect(app.byId("session-row")).toBeVisible();
    expect(await fits()).toBe(true);
    await expectAccessible(page);
    await picture(page, "phone-sessions");
    await bar.getByRole("button", { name: "Log" }).tap();
    await expect(app.byId("log")).toBeVisible();
    expect(await fits()).toBe(true);
    await expectAccessible(page);
    await picture(page, "phone-log");
    await app.byId("tab-debug").tap();
    await app.byId("debug-step").first().getByRole("button").first().tap();
    await expect(app.byId("fingerprint").first()).toHaveAttribute("data-match", "true");
    expect(await fits()).toBe(true);
    await expectAccessible(page);
    await app.byId("tab-session").tap();
    await app.byId("continue-session").tap();
    await expect(app.banner).toBeVisible();
    await app.send("$ touch asked.txt");
    await expect(app.byId("approve")).toBeVisible();
    expect(await fits()).toBe(true);
    await expectAccessible(page);
    await picture(page, "phone-approval");
    await app.byId("deny").tap();
    await app.ended(2);
  });
});
