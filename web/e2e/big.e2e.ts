import type { Page } from "@playwright/test";
import { isFull, loaded, make, rawRead, report, sizes, Watch, withoutIndex, type Made } from "./support/big";
import { Place, Server } from "./support/server";
import { expect, test } from "./support/test";
import { Threadline } from "./support/threadline";

// What is counted is asserted at every size, with the same bounds: they do not depend on the size.
// That no task of the page takes 100 ms is asserted at full size alone, where the machine does
// nothing else; see `heavy`. Times by the clock are told, never asserted.

/** Rows and elements that exist at one time, and megabytes and nodes after garbage was collected. */
const most = { rows: 60, listed: 60, elements: 4_000, heap: 40, nodes: 20_000 };

/** One turn of a wheel that spins freely: four screens. */
const spin = 3_000;

async function shows(app: Threadline, { id, turns }: Made): Promise<void> {
  await app.live(id);
  await expect(app.turn(turns)).toBeInViewport();
}

const isAtTop = (page: Page): Promise<boolean> =>
  page.evaluate(() => {
    const first = document.querySelector("[data-testid=turn]");
    const frame = document.querySelector("[data-testid=turns]");
    return first?.getAttribute("data-turn") === "1" && frame?.scrollTop === 0;
  });

interface Wheeled {
  spins: number;
  /** Milliseconds of a processor for a turn of the wheel: the most, and on average. */
  most: number;
  mean: number;
  /**
   * Tasks that may have taken more than 100 ms of a processor: those that did by the clock, during a
   * turn of the wheel that cost as much in all. On a busy machine many do the first by waiting.
   */
  heavy: number[];
}

/** Turns the wheel until something is so, looking now and then. */
async function wheel(page: Page, watch: Watch, by: number, done: () => Promise<boolean>): Promise<Wheeled> {
  const begun = await watch.busy();
  const heavy: number[] = [];
  let most = 0;
  for (let spins = 1; ; spins++) {
    const before = await watch.busy();
    await page.mouse.wheel(0, by);
    const cost = Math.round((await watch.busy()) - before);
    most = Math.max(most, cost);
    if (cost > 100) heavy.push(...(await watch.slowSince()).map((took) => Math.min(took, cost)));
    if (spins % 10 !== 0) continue;
    await watch.slowSince();
    if (await done()) return { spins, most, mean: Math.round(((await watch.busy()) - begun) / spins), heavy };
  }
}

const since = (begun: number): number => Math.round(performance.now() - begun);

async function readAll(page: Page, made: Made, server: Server): Promise<Record<string, unknown>> {
  const newest = async (): Promise<number> => {
    const begun = performance.now();
    await server.turns(made.id);
    return since(begun);
  };
  const unindexed = await withoutIndex(made, async () => [await newest(), await newest()]);
  const indexed = [await newest(), await newest()];
  const watch = await Watch.over(page);
  const app = await Threadline.open(page, server);
  await page.goto("about:blank");
  await page.goto(`${server.origin}/#/session/${made.id}`);
  await shows(app, made);
  const opened = (await watch.seen()).firstTurn;
  const atEnd = await watch.held();

  // Up to the very top, as a person does it.
  await watch.reset();
  await app.byId("turns").hover();
  const begun = performance.now();
  const wheeled = await wheel(page, watch, -spin, () => isAtTop(page));
  const up = since(begun);
  await expect(app.turn(1)).toBeInViewport();
  const scrolled = await watch.seen();
  const slow = await watch.slow();
  const asked = { ...watch.turns };
  const atTop = await watch.held();
  if (isFull) expect.soft(wheeled.heavy, "tasks of more than 100 ms").toEqual([]);
  expect(scrolled.rows).toBeLessThan(most.rows);
  expect(scrolled.elements).toBeLessThan(most.elements);
  expect(asked.mostUnderWay).toBe(1);
  expect(asked.again).toBe(0);
  expect(atTop.heap).toBeLessThan(most.heap);
  expect(atTop.nodes).toBeLessThan(most.nodes);

  // Back to the end, up by one key, and back again.
  await watch.reset();
  const key = async (name: string, turn: number): Promise<number> => {
    const pressed = performance.now();
    await page.keyboard.press(name);
    await expect(app.turn(turn)).toBeInViewport();
    return since(pressed);
  };
  await app.byId("turns").focus();
  const end = await key("End", made.turns);
  const home = await key("Home", 1);
  await key("End", made.turns);
  expect(watch.turns.all).toBeLessThan(6);
  const after = await watch.held();
  expect(after.heap).toBeLessThan(most.heap);
  expect(after.nodes).toBeLessThan(most.nodes);
  return {
    events: made.events,
    newest: { unindexed, indexed },
    opened: Math.round(opened ?? Number.NaN),
    wheeled,
    up,
    windows: asked.all,
    slow,
    rows: scrolled.rows,
    elements: scrolled.elements,
    home,
    end,
    heap: { atEnd, atTop, after },
  };
}

/** Reads a session of a size from its end to its beginning and back. */
function reading(size: number): void {
  test(`a session of ${size} events opens at its end and is read to its first turn and back, at bounded size`, async ({ page }) => {
    test.setTimeout(isFull ? 60 * 60_000 : 120_000);
    await over("session", size, async (made, server) => {
      const figures = await readAll(page, made, server);
      report(`session of ${size} events`, { ...figures, raw: rawRead(made.log) });
    });
  });
}

/** A store that was made, and a server over it. */
async function over(kind: "session" | "sessions", size: number, use: (made: Made, server: Server) => Promise<void>): Promise<void> {
  const outside = new Place();
  const made = await make(outside, kind, size);
  const place = new Place(made.root);
  const server = await Server.start(place);
  try {
    await use(made, server);
  } finally {
    await server.kill();
    place.remove();
    outside.remove();
  }
}

reading(sizes.events);
if (isFull) reading(sizes.events / 10);

/** Goes through a list from its first row to its last, here and there, and searches. */
async function listAll(page: Page, made: Made, server: Server): Promise<Record<string, unknown>> {
  const watch = await Watch.over(page);
  const app = await Threadline.open(page, server);
  const shown = made.listed.toLocaleString("en");
  await expect(app.byId("list-footer")).toContainText(`${shown} sessions`);
  const first = (await watch.seen()).firstRow;
  const row = (at: number) => page.locator(`[data-testid="session-row"][data-at="${at}"]`);
  const last = row(made.listed - 1);
  const frame = page.locator(".session-scroll");

  // Down to the last row with the wheel.
  await watch.reset();
  await frame.hover();
  const begun = performance.now();
  const wheeled = await wheel(page, watch, spin, () => last.isVisible());
  const down = since(begun);
  await expect(last).toBeInViewport();
  const scrolled = await watch.seen();
  const slow = await watch.slow();
  const asked = { ...watch.list };
  const atEnd = await watch.held();
  if (isFull) expect.soft(wheeled.heavy, "tasks of more than 100 ms").toEqual([]);
  expect(scrolled.listed).toBeLessThan(most.listed);
  expect(scrolled.elements).toBeLessThan(most.elements);
  expect(asked.mostUnderWay).toBeLessThanOrEqual(4);
  // Each page once; what is in sight is asked for again now and then, whoever scrolls.
  expect(asked.all - asked.again).toBeLessThanOrEqual(made.listed / 100 + 1);

  // By keys from end to end, and by dragging to places that were never near.
  const key = async (name: string, at: number): Promise<number> => {
    const pressed = performance.now();
    await page.keyboard.press(name);
    await expect(row(at)).toBeInViewport();
    return since(pressed);
  };
  await last.locator(".row-main").focus();
  const home = await key("Home", 0);
  const end = await key("End", made.listed - 1);
  await watch.reset();
  for (let part = 1; part < 40; part++) {
    const at = Math.floor((made.listed * ((part * 17) % 40)) / 40);
    await frame.evaluate((list, share) => list.scrollTo(0, list.scrollHeight * share), at / made.listed);
    await expect(row(at)).toBeVisible();
  }
  expect(watch.list.all - watch.list.again).toBeLessThanOrEqual(2 * 39);
  const after = await watch.held();

  const begunSearch = performance.now();
  await app.byId("search").fill("billing");
  await expect(app.byId("session-row").first().locator("mark")).toHaveText(/billing/i);
  const search = since(begunSearch);
  const { counts } = await server.get<{ counts: { shown: number } }>("/sessions?query=billing&archived=false&count=1&limit=1");
  await expect(app.byId("list-footer")).toContainText(`${counts.shown.toLocaleString("en")} session`);
  await app.byId("search").fill("a word that no session has");
  await expect(page.getByText("No session matches")).toBeVisible();
  for (const held of [atEnd, after, await watch.held()]) {
    expect(held.heap).toBeLessThan(most.heap);
    expect(held.nodes).toBeLessThan(most.nodes);
  }
  return {
    sessions: made.sessions,
    firstRow: Math.round(first ?? Number.NaN),
    wheeled,
    down,
    requests: asked.all,
    atOnce: asked.mostUnderWay,
    slow,
    rows: scrolled.listed,
    elements: scrolled.elements,
    home,
    end,
    search,
    heap: { atEnd, after },
  };
}

function listing(size: number): void {
  test(`a list of ${size} sessions is scrolled to its last row and searched, at bounded size`, async ({ page }) => {
    test.setTimeout(isFull ? 30 * 60_000 : 120_000);
    await over("sessions", size, async (made, server) => {
      const figures = await listAll(page, made, server);
      report(`list of ${size} sessions`, figures);
    });
  });
}

listing(sizes.sessions);
if (isFull) listing(sizes.sessions / 10);

/** Opens an address in a page that has nothing but the cookie, and says how it has loaded. */
async function load(page: Page, address: string, ready: () => Promise<void>) {
  await page.goto("about:blank");
  await page.goto(address);
  await ready();
  // What is put off until the page has nothing to do belongs to it.
  await page.evaluate(() => new Promise((done) => requestIdleCallback(done)));
  const figures = await loaded(page);
  expect(figures.gzipped).toBeLessThan(300);
  expect(figures.shift).toBeLessThan(0.01);
  return figures;
}

test("the first load is small, and nothing moves once it is there", async ({ page, server }) => {
  test.setTimeout(isFull ? 10 * 60_000 : 60_000);
  await Watch.over(page);
  const app = await Threadline.open(page, server);
  const empty = await load(page, `${server.origin}/`, () => expect(app.byId("composer")).toBeVisible());
  report("load of an empty list", { ...empty });

  await page.evaluate(() => (window.seen.shift = 0));
  await app.send("show me what you can do");
  await app.ended(1);
  const { shift } = await page.evaluate(() => window.seen);
  expect(shift).toBeLessThan(0.01);
  const id = await app.sessionId();
  const ordinary = await load(page, `${server.origin}/#/session/${id}`, () => app.live(id));
  report("load of an ordinary session", { ...ordinary, streaming: shift });

  await over("session", sizes.events, async (made, big) => {
    const other = await Threadline.open(page, big);
    const figures = await load(page, `${big.origin}/#/session/${made.id}`, () => shows(other, made));
    report(`load of a session of ${sizes.events} events`, { ...figures });
  });
});
