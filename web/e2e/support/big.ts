import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import type { CDPSession, Page, Request } from "@playwright/test";
import { program } from "./processes";
import type { Place } from "./server";

/** What `threadline-bench make` says that it has made. */
export interface Made {
  root: string;
  id: string;
  log: string;
  events: number;
  turns: number;
  longTurns: number[];
  unknownTurn: number | null;
  sessions: number;
  listed: number;
}

/** Where large stores are kept between runs; without it they are small and go with the test. */
const kept = process.env["BIG_DIR"];

/** Whether this is a measurement at full size, which has the machine to itself. */
export const isFull = kept !== undefined;

export const sizes = {
  events: Number(process.env["BIG_EVENTS"] ?? 20_000),
  sessions: Number(process.env["BIG_SESSIONS"] ?? 2_000),
};

/** Makes a store with one session of so many events, or with so many sessions. */
export async function make(place: Place, kind: "session" | "sessions", size: number): Promise<Made> {
  const folder = join(kept ?? place.root, `${kind}-${size}`);
  const option = kind === "session" ? "--events" : "--count";
  const args = ["make", kind, folder, option, String(size)];
  const { stdout } = await promisify(execFile)(program("BENCH_BIN", "threadline-bench"), args);
  return JSON.parse(stdout) as Made;
}

/** Does something while the index of a log, from which its state is read, is not there. */
export async function withoutIndex<T>(made: Made, act: () => Promise<T>): Promise<T> {
  const index = join(dirname(made.log), "index");
  const aside = join(dirname(made.root), "index.aside");
  renameSync(index, aside);
  try {
    return await act();
  } finally {
    renameSync(aside, index);
  }
}

/** Milliseconds for reading all bytes of a file that the system has in memory. */
export function rawRead(path: string): { bytes: number; ms: number } {
  let bytes = readFileSync(path).length;
  const begun = performance.now();
  bytes = readFileSync(path).length;
  return { bytes, ms: performance.now() - begun };
}

/** What is measured, for the table of `cargo xtask bench page`. */
export function report(name: string, figures: Record<string, unknown>): void {
  const path = process.env["BIG_REPORT"];
  if (path === undefined) return;
  let all: Record<string, unknown> = {};
  try {
    all = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  } catch {
    mkdirSync(dirname(path), { recursive: true });
  }
  writeFileSync(path, `${JSON.stringify({ ...all, [name]: figures }, null, 2)}\n`);
  process.stderr.write(`  ${name}: ${JSON.stringify(figures)}\n`);
}

/** What the page itself has seen since it began. */
interface Seen {
  /** Tasks of more than 50 ms: when they began, and for how long. */
  tasks: [number, number][];
  /** Most rows of a conversation, rows of the list, and elements, at one time. */
  rows: number;
  listed: number;
  elements: number;
  /** When the first turn and the first row of the list were there. */
  firstTurn: number | null;
  firstRow: number | null;
  /** Sum of layout shifts that no input asked for, and the last paint of the largest content. */
  shift: number;
  largest: number;
}

declare global {
  interface Window {
    seen: Seen;
  }
}

/** Runs in the page, before anything of its own. */
function look(): void {
  const seen: Seen = {
    tasks: [],
    rows: 0,
    listed: 0,
    elements: 0,
    firstTurn: null,
    firstRow: null,
    shift: 0,
    largest: 0,
  };
  window.seen = seen;
  const observe = (type: string, take: (entry: PerformanceEntry) => void): void => {
    new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true });
  };
  observe("longtask", (entry) => seen.tasks.push([Math.round(entry.startTime), Math.round(entry.duration)]));
  observe("largest-contentful-paint", (entry) => (seen.largest = entry.startTime));
  observe("layout-shift", (entry) => {
    const { value, hadRecentInput } = entry as PerformanceEntry & { value: number; hadRecentInput: boolean };
    if (!hadRecentInput) seen.shift += value;
  });
  const count = (): void => {
    const rows = document.getElementsByClassName("row").length;
    const listed = document.getElementsByClassName("session-row").length;
    if (rows > 0) seen.firstTurn ??= performance.now();
    if (document.querySelector("[data-testid=session-row]") !== null) seen.firstRow ??= performance.now();
    seen.rows = Math.max(seen.rows, rows);
    seen.listed = Math.max(seen.listed, listed);
    seen.elements = Math.max(seen.elements, document.getElementsByTagName("*").length);
    requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
}

/** Requests of one kind. */
interface Asked {
  all: number;
  /** Those for what was asked for before. */
  again: number;
  underWay: number;
  mostUnderWay: number;
}

/** Counts what a page does and holds. */
export class Watch {
  readonly #page: Page;
  readonly #cdp: CDPSession;
  #asked: Record<"turns" | "list", Asked> = { turns: nothing(), list: nothing() };
  #known = new Set<string>();
  #slow = 0;

  private constructor(page: Page, cdp: CDPSession) {
    this.#page = page;
    this.#cdp = cdp;
    page.on("request", (request) => this.#begins(request));
    page.on("requestfinished", (request) => this.#ends(request));
    page.on("requestfailed", (request) => this.#ends(request));
  }

  /** Watches everything that the page loads from now on. */
  static async over(page: Page): Promise<Watch> {
    await page.addInitScript(look);
    const cdp = await page.context().newCDPSession(page);
    await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
    await cdp.send("HeapProfiler.enable");
    return new Watch(page, cdp);
  }

  /** Begins to count anew. */
  async reset(): Promise<void> {
    this.#asked = { turns: nothing(), list: nothing() };
    this.#known.clear();
    this.#slow = 0;
    await this.#page.evaluate(() => {
      const none = { rows: 0, listed: 0, elements: 0, shift: 0 };
      Object.assign(window.seen, none, { tasks: [] });
    });
  }

  get turns(): Readonly<Asked> {
    return this.#asked.turns;
  }

  get list(): Readonly<Asked> {
    return this.#asked.list;
  }

  seen(): Promise<Seen> {
    return this.#page.evaluate(() => window.seen);
  }

  /** Tasks of more than 100 ms by the clock, on a busy machine also those that had to wait. */
  async slow(): Promise<number[]> {
    const { tasks } = await this.seen();
    return tasks.map(([, took]) => took).filter((took) => took > 100);
  }

  /** Those of them since this was asked last. */
  async slowSince(): Promise<number[]> {
    // They are told a moment after they have ended.
    await this.#page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
    const slow = await this.slow();
    const fresh = slow.slice(this.#slow);
    this.#slow = slow.length;
    return fresh;
  }

  /** What is left after garbage was collected: megabytes of the heap, and nodes. */
  async held(): Promise<{ heap: number; nodes: number }> {
    await this.#cdp.send("HeapProfiler.collectGarbage");
    await this.#cdp.send("HeapProfiler.collectGarbage");
    const { JSHeapUsedSize = Number.NaN, Nodes = Number.NaN } = await this.#metrics();
    return { heap: Math.round(JSHeapUsedSize / 1e5) / 10, nodes: Nodes };
  }

  /**
   * Milliseconds of a processor that tasks of the page's main thread have taken so far. What others
   * do with the machine does not count.
   */
  async busy(): Promise<number> {
    return ((await this.#metrics())["TaskDuration"] ?? Number.NaN) * 1_000;
  }

  async #metrics(): Promise<Record<string, number>> {
    const { metrics } = await this.#cdp.send("Performance.getMetrics");
    return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
  }

  #begins(request: Request): void {
    const asked = this.#of(request);
    if (asked === null) return;
    asked.all += 1;
    if (this.#known.has(request.url())) asked.again += 1;
    this.#known.add(request.url());
    asked.underWay += 1;
    asked.mostUnderWay = Math.max(asked.mostUnderWay, asked.underWay);
  }

  #ends(request: Request): void {
    const asked = this.#of(request);
    if (asked !== null) asked.underWay = Math.max(0, asked.underWay - 1);
  }

  #of(request: Request): Asked | null {
    const { pathname, searchParams } = new URL(request.url());
    if (/\/sessions\/[^/]+\/turns$/.test(pathname)) return this.#asked.turns;
    // Those that count are of the refresh.
    const isPage = searchParams.get("pinned") === "false" && !searchParams.has("count");
    if (pathname.endsWith("/sessions") && isPage) return this.#asked.list;
    return null;
  }
}

function nothing(): Asked {
  return { all: 0, again: 0, underWay: 0, mostUnderWay: 0 };
}

/** How a page has loaded, by the browser's own entries: times in milliseconds, sizes in kilobytes. */
export interface Loaded {
  scripts: number;
  /** What the scripts are when compressed; the server is local and does not. */
  gzipped: number;
  firstPaint: number;
  firstContent: number;
  largestContent: number;
  /** What tasks took beyond 50 ms each. */
  blocking: number;
  shift: number;
}

export async function loaded(page: Page): Promise<Loaded> {
  const { texts, paints } = await page.evaluate(async () => {
    const resources = performance.getEntriesByType("resource").map((entry) => entry.name);
    const urls = [...new Set(resources.filter((name) => new URL(name).pathname.endsWith(".js")))];
    const paints = performance.getEntriesByType("paint").map((entry) => [entry.name, entry.startTime] as const);
    // From the browser's cache: they never change.
    const texts = await Promise.all(urls.map(async (url) => (await fetch(url)).text()));
    return { texts, paints: Object.fromEntries(paints) };
  });
  const { tasks, shift, largest } = await page.evaluate(() => window.seen);
  const kilobytes = (sizes: number[]): number => Math.round(sizes.reduce((sum, size) => sum + size, 0) / 100) / 10;
  return {
    scripts: kilobytes(texts.map((text) => Buffer.byteLength(text))),
    gzipped: kilobytes(texts.map((text) => gzipSync(text).length)),
    firstPaint: Math.round(paints["first-paint"] ?? Number.NaN),
    firstContent: Math.round(paints["first-contentful-paint"] ?? Number.NaN),
    largestContent: Math.round(largest),
    blocking: tasks.reduce((sum, [, took]) => sum + took - 50, 0),
    shift: Math.round(shift * 1e4) / 1e4,
  };
}
