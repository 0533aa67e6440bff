import { expect, test as base, type BrowserContext, type Page } from "@playwright/test";
import { CuttingProxy } from "./proxy";
import { Place, Server } from "./server";
import { StrictModel } from "./strict";
import { Threadline } from "./threadline";

interface Fixtures {
  place: Place;
  /** The real binary with the offline provider. */
  server: Server;
  strict: StrictModel;
  /** The real binary with the strict model. */
  strictServer: Server;
  /** The page, signed in to `server`. */
  app: Threadline;
  /** The page, signed in to `strictServer`. */
  strictApp: Threadline;
  /** Another person's browser. */
  other: (server: Server) => Promise<Threadline>;
  /** Opens the page behind a proxy that cuts its streams. */
  behindProxy: (server: Server) => Promise<{ app: Threadline; proxy: CuttingProxy }>;
}

export const test = base.extend<Fixtures>({
  // Whatever a test does, the page must not throw, be refused by its own policy, talk to anybody
  // else, or open a dialog.
  context: async ({ context }, use) => {
    const problems = watch(context);
    await use(context);
    expect(problems, "what no page may do").toEqual([]);
  },
  place: async ({}, use) => {
    const place = new Place();
    await use(place);
    place.remove();
  },
  server: async ({ place }, use) => {
    const server = await Server.start(place);
    await use(server);
    await server.kill();
  },
  strict: async ({ place }, use) => {
    const strict = await StrictModel.start(place.root);
    await use(strict);
    await strict.kill();
  },
  strictServer: async ({ place, strict }, use) => {
    const server = await Server.start(place, { modelUrl: strict.baseUrl });
    await use(server);
    await server.kill();
  },
  app: async ({ page, server }, use) => {
    await use(await Threadline.open(page, server));
  },
  strictApp: async ({ page, strictServer }, use) => {
    await use(await Threadline.open(page, strictServer));
  },
  other: async ({ browser }, use) => {
    const contexts: BrowserContext[] = [];
    const problems: string[][] = [];
    await use(async (server) => {
      const context = await browser.newContext();
      contexts.push(context);
      problems.push(watch(context));
      return Threadline.open(await context.newPage(), server);
    });
    for (const context of contexts) await context.close();
    expect(problems.flat(), "what no page may do").toEqual([]);
  },
  behindProxy: async ({ page }, use) => {
    const proxies: CuttingProxy[] = [];
    await use(async (server) => {
      const proxy = await CuttingProxy.start(server.origin);
      proxies.push(proxy);
      return { app: await Threadline.open(page, server, proxy.origin), proxy };
    });
    for (const proxy of proxies) await proxy.stop();
  },
});

export { expect };

function watch(context: BrowserContext): string[] {
  const problems: string[] = [];
  context.on("weberror", (error) => problems.push(`uncaught: ${error.error().message}`));
  context.on("dialog", (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  context.on("request", (request) => {
    const { protocol, hostname } = new URL(request.url());
    if (protocol.startsWith("http") && hostname !== "127.0.0.1") problems.push(`request: ${request.url()}`);
  });
  context.on("console", (message) => {
    // Chromium reports every answer of 4xx and every cut connection as an error of the page.
    if (message.type() !== "error" || message.text().startsWith("Failed to load resource")) return;
    problems.push(`console: ${message.text()}`);
  });
  return problems;
}

/** Saves a picture for people to look at; Playwright empties the folder at the start of a run. */
export async function picture(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: `test-results/pictures/${name}.png` });
}
