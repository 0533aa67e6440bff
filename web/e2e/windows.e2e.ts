import type { Page } from "@playwright/test";
import { Log } from "./support/logs";
import type { Place } from "./support/server";
import { expect, picture, test } from "./support/test";
import type { Threadline } from "./support/threadline";

const turns = 400;

/** Far more than the page holds at once. */
function long(place: Place): Log {
  const log = new Log(place);
  for (let at = 1; at <= turns; at++) {
    log.open(`question ${at}`).call("shell", { command: `echo ${at}` }, `${at}\n[exit code 0]`);
    log.answer(`Answer ${at}. ${"It goes on. ".repeat(at % 7)}`).close();
  }
  return log;
}

/** One turn with far more items than the page holds at once. */
function deep(place: Place): Log {
  const log = new Log(place);
  log.open("a long job");
  for (let at = 1; at <= 900; at++) log.call("shell", { command: `step ${at}` }, `${at}\n[exit code 0]`);
  log.answer("All steps are done.");
  return log.close();
}

async function open(app: Threadline, id: string, path = ""): Promise<void> {
  await app.page.goto(`${app.server.origin}/#/session/${id}${path}`);
  await app.page.reload();
  await app.live(id);
}

const rowsOnPage = (page: Page): Promise<number> => page.locator(".row").count();
const rowsHeld = async (page: Page): Promise<number> => Number(await page.getByTestId("turns").getAttribute("data-rows"));

test("a long session opens at its end, and holds no more than its end", async ({ place, app, page }) => {
  await open(app, long(place).write());
  await expect(app.turn(turns)).toContainText(`Answer ${turns}.`);
  await expect(app.turn(turns)).toBeInViewport();
  expect(await rowsHeld(page)).toBeLessThan(400);
  expect(await rowsOnPage(page)).toBeLessThan(80);
});

test("reading upwards goes through every turn, without a jump and at bounded size", async ({ place, app, page }) => {
  test.setTimeout(120_000);
  await open(app, long(place).write());
  await expect(app.turn(turns)).toBeInViewport();
  const result = await page.evaluate(async (last) => {
    const frame = document.querySelector<HTMLElement>(".turns-scroll");
    if (frame === null) throw new Error("no frame");
    const seen = new Set<number>();
    const jumps: string[] = [];
    const tolerance = 2;
    let most = 0;
    // As it is painted: between two frames rows stand where nobody sees them.
    const topOf = (row: Element): Promise<number> =>
      new Promise((done) => {
        const observer = new IntersectionObserver(([entry]) => {
          observer.disconnect();
          done(entry?.boundingClientRect.top ?? Number.NaN);
        });
        observer.observe(row);
      });
    frame.focus();
    for (let step = 0; step < 6000 && !seen.has(1); step++) {
      for (const turn of document.querySelectorAll<HTMLElement>(".turn")) seen.add(Number(turn.dataset["turn"]));
      most = Math.max(most, Number(frame.dataset["rows"]));
      // What is in the frame must be where it was, moved by what was scrolled, whatever comes in
      // above it at the same moment.
      const anchor = [...document.querySelectorAll<HTMLElement>(".row-head")].find((row) => {
        const { top } = row.getBoundingClientRect();
        return top > 150 && top < 600;
      });
      const title = anchor?.innerText;
      const before = anchor === undefined ? 0 : await topOf(anchor);
      frame.dispatchEvent(new WheelEvent("wheel", { deltaY: -220 }));
      const room = frame.scrollTop;
      frame.scrollTop -= 220;
      const moved = Math.min(220, room);
      // Rows that come in with the move have their heights in the next frame.
      await topOf(frame);
      if (anchor?.isConnected && anchor.innerText === title) {
        const off = (await topOf(anchor)) - before - moved;
        if (Math.abs(off) > tolerance) jumps.push(`${title?.slice(0, 8)} ${Math.round(off)}`);
      }
    }
    return { missing: Array.from({ length: last }, (_, at) => at + 1).filter((turn) => !seen.has(turn)), jumps, most };
  }, turns);
  expect(result.missing).toEqual([]);
  expect(result.jumps).toEqual([]);
  // The tail, and what is kept of the pages before it.
  expect(result.most).toBeLessThan(1300);
  await expect(app.turn(1)).toContainText("question 1");

  // What was let go of on the way is not missed: the end is where it was.
  await app.byId("jump").click();
  await expect(app.turn(turns)).toBeInViewport();
  await expect(app.byId("jump")).toHaveCount(0);
});

test("the first turn is one key away, and the gap behind it is filled as it is read", async ({ place, app, page }) => {
  await open(app, long(place).write());
  await expect(app.turn(turns)).toBeInViewport();
  await app.byId("turns").focus();
  await page.keyboard.press("Home");
  await expect(app.turn(1)).toBeInViewport();
  await expect(app.byId("jump")).toBeVisible();
  expect(await rowsHeld(page)).toBeLessThan(500);
  await expect(async () => {
    // Less than a frame, so that no turn is passed by.
    await app.byId("turns").evaluate((frame) => frame.scrollBy(0, 400));
    await expect(app.turn(60)).toBeInViewport({ timeout: 100 });
  }).toPass({ timeout: 30_000, intervals: [50] });
  await expect(app.turn(61)).toBeVisible();
  await page.keyboard.press("End");
  await expect(app.turn(turns)).toBeInViewport();
});

test("a link to a turn or an event goes there and shows it", async ({ place, app, page }) => {
  const id = long(place).write();
  await open(app, id, "/t/77");
  await expect(app.turn(77).locator(".row-head[data-sought]")).toBeInViewport();
  await expect(app.turn(77)).toContainText("question 77");
  // The ninth event of a turn is its answer.
  const { turns: found } = await app.server.get<{ turns: { startSeq: number }[] }>(`/sessions/${id}/turns?turn=200&limit=1`);
  const start = found[0]?.startSeq ?? -1;
  await page.evaluate((hash) => location.assign(hash), `#/session/${id}/e/${start + 8}`);
  await expect(page.locator(".row[data-sought]")).toContainText("Answer 200.");
  await expect(page.locator(".row[data-sought]")).toBeInViewport();
  await picture(page, "linked-event");
  await page.goBack();
  await expect(app.turn(77).locator(".row-head[data-sought]")).toBeInViewport();
  await page.evaluate((hash) => location.assign(hash), `#/session/${id}/t/999`);
  await expect(app.byId("sought-missing")).toHaveText("This session has no turn 999.");
});

test("a turn of many steps is read in parts", async ({ place, app, page }) => {
  await open(app, deep(place).write());
  await expect(app.turn(1)).toContainText("All steps are done.");
  expect(await rowsHeld(page)).toBeLessThan(400);
  const head = app.turn(1).locator(".turn-header");
  await app.byId("turns").focus();
  await page.keyboard.press("Home");
  await expect(app.turn(1)).toContainText("a long job");
  await expect(head.locator(".status")).toHaveAttribute("data-status", "completed");
  expect(await rowsHeld(page)).toBeLessThan(700);
  await picture(page, "long-turn");
});

test("what comes while somebody reads above is counted, and one click away", async ({ place, app, page }) => {
  const id = long(place).write();
  await open(app, id);
  await expect(app.turn(turns)).toBeInViewport();
  await app.byId("turns").hover();
  await page.mouse.wheel(0, -2500);
  await expect(app.byId("jump")).toHaveText("Jump to latest");
  const { y } = (await page.locator(".turn-header").nth(2).boundingBox()) ?? { y: -1 };
  await app.server.run({ task: "one more", sessionId: id });
  await expect(app.byId("jump")).toHaveText(/Jump to latest \(\d+ new\)/);
  expect((await page.locator(".turn-header").nth(2).boundingBox())?.y).toBeCloseTo(y, 0);
  await app.byId("jump").click();
  await expect(app.turn(turns + 1)).toContainText("one more");
});
