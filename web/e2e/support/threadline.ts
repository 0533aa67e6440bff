import { expect, type Locator, type Page } from "@playwright/test";
import type { Turn } from "../../src/api/types";
import type {} from "../../src/state/probe";
import type { Server } from "./server";

export interface TaskOptions {
  approval?: "strict" | "on_request" | "never";
}

/** The page as a person uses it. */
export class Threadline {
  readonly page: Page;
  readonly server: Server;

  private constructor(page: Page, server: Server) {
    this.page = page;
    this.server = server;
  }

  static async open(page: Page, server: Server, origin?: string): Promise<Threadline> {
    await page.goto(server.url(origin));
    const app = new Threadline(page, server);
    await expect(app.byId("composer")).toBeVisible();
    // The token must not stay in the address.
    expect(page.url()).not.toContain("token");
    return app;
  }

  byId(id: string): Locator {
    return this.page.getByTestId(id);
  }

  turn(number: number): Locator {
    return this.page.locator(`[data-testid="turn"][data-turn="${number}"]`);
  }

  card(callId: string): Locator {
    return this.page.locator(`[data-testid="tool-card"][data-call-id="${callId}"]`);
  }

  row(sessionId: string): Locator {
    return this.page.locator(`[data-testid="session-row"][data-session-id="${sessionId}"]`);
  }

  get banner(): Locator {
    return this.byId("banner-continuing");
  }

  /** Types a task and sends it. */
  async send(task: string, options: TaskOptions = {}): Promise<void> {
    if (options.approval !== undefined) await this.byId("approval-policy").selectOption(options.approval);
    await this.byId("composer").fill(task);
    await this.byId("send").click();
  }

  /** Waits until a turn says how it ended. */
  async ended(turn: number, how = "completed"): Promise<void> {
    await expect(this.turn(turn).locator(".turn-header .status")).toHaveAttribute("data-status", how, {
      timeout: 30_000,
    });
  }

  async continueSession(sessionId: string): Promise<void> {
    await this.byId("continue-session").click();
    await expect(this.banner).toHaveText(new RegExp(`Continuing session ${sessionId.slice(0, 8)}`));
  }

  /** The session on the screen. */
  async sessionId(): Promise<string> {
    await expect(this.page).toHaveURL(/#\/session\//);
    const id = new URL(this.page.url()).hash.split("/").at(-1);
    if (id === undefined) throw new Error(this.page.url());
    return id;
  }

  async openSession(sessionId: string): Promise<void> {
    await this.row(sessionId).locator(".row-main").click();
    await this.live(sessionId);
  }

  /** Waits until the page follows a session. */
  async live(sessionId: string): Promise<void> {
    await expect.poll(async () => (await this.probe()).sessionId).toBe(sessionId);
    await expect(this.byId("connection")).toHaveAttribute("data-state", "live");
  }

  probe(): Promise<{ sessionId: string | null; snapshotSeq: number; appliedSeqs: number[]; views: number[] }> {
    return this.page.evaluate(() => {
      const probe = window.__threadline;
      if (probe === undefined) throw new Error("the page has no probe");
      const { sessionId, snapshotSeq, appliedSeqs, views } = probe;
      return { sessionId, snapshotSeq, appliedSeqs: [...appliedSeqs], views: [...views] };
    });
  }

  /** Every event since the snapshot was delivered once, in order, and the screen says what the log says. */
  async expectExactlyOnce(sessionId: string): Promise<void> {
    const { turns, lastSeq } = await this.server.turns(sessionId);
    await expect(async () => {
      const { snapshotSeq, appliedSeqs } = await this.probe();
      const wanted = Array.from({ length: lastSeq - snapshotSeq }, (_, at) => snapshotSeq + 1 + at);
      expect(appliedSeqs).toEqual(wanted);
    }).toPass({ timeout: 15_000 });
    const { views } = await this.probe();
    expect(views).toEqual([...new Set(views)].sort((a, b) => a - b));
    await expect(this.byId("log")).toHaveAttribute("data-total", String(lastSeq + 1));
    await expect(this.byId("turn")).toHaveCount(turns.length);
    for (const turn of turns) await this.#expectShown(turn);
  }

  async #expectShown(turn: Turn): Promise<void> {
    const shown = this.turn(turn.turn);
    const users: string[] = [];
    const texts: string[] = [];
    const calls: string[] = [];
    for (const item of turn.items) {
      if (item.kind === "user") users.push(item.content.map((part) => part.text ?? "").join("\n"));
      if (item.kind === "assistant") {
        texts.push(item.parts.filter((part) => part.kind === "text").map((part) => part.text).join(""));
      }
      if (item.kind === "tool") calls.push(`${item.callId} ${item.outcome}`);
    }
    const plain = (text: string): string => text.replaceAll("`", "").replace(/\s+/g, " ").trim();
    await expect(async () => {
      const said = await shown.locator('[data-testid="item-user"] .user-text').allTextContents();
      expect(said.map(plain)).toEqual(users.map(plain));
      const answers = await shown.getByTestId("item-assistant").all();
      const answered = await Promise.all(
        answers.map(async (answer) => (await answer.locator(".markdown").allInnerTexts()).join(" ")),
      );
      expect(answered.map(plain)).toEqual(texts.map(plain));
      const cards = await shown.getByTestId("tool-card").evaluateAll((all) =>
        all.map((card) => `${card.getAttribute("data-call-id")} ${card.getAttribute("data-outcome")}`),
      );
      expect(cards).toEqual(calls);
    }).toPass({ timeout: 15_000 });
  }

  /** All that the conversation shows, as text. */
  conversation(): Promise<string> {
    return this.page.locator(".turns").innerText();
  }
}
