import AxeBuilder from "@axe-core/playwright";
import { expect, picture, test } from "./support/test";

test("forks stand below what they came from, by mouse and by keys, and nothing is hidden that is not said", async ({ page, app, server }) => {
  const root = await server.run({ task: "the root" });
  const other = await server.run({ task: "another" });
  const fork = await server.fork(root);
  const grandchild = await server.fork(fork);
  await page.reload();
  await expect(app.row(grandchild)).toBeVisible();
  await expect(app.byId("list-footer")).toContainText("4 sessions");

  await app.byId("as-tree").check();
  await expect(app.byId("session-row")).toHaveCount(2);
  // Closed trees hide nothing by a filter.
  await expect(app.byId("list-footer")).toContainText("4 sessions");
  await expect(app.byId("hidden-count")).toHaveCount(0);
  await expect(app.row(other)).toHaveAttribute("data-branch", "leaf");

  await app.row(root).getByRole("button", { name: /1 session below/ }).click();
  await expect(app.row(fork)).toHaveAttribute("aria-level", "2");
  await app.row(root).locator(".row-main").focus();
  await page.keyboard.press("ArrowRight");
  await expect(app.row(fork).locator(".row-main")).toBeFocused();
  await page.keyboard.press("ArrowRight");
  await expect(app.row(grandchild)).toHaveAttribute("aria-level", "3");
  await page.keyboard.press("ArrowRight");
  await expect(app.row(grandchild).locator(".row-main")).toBeFocused();
  await picture(page, "list-tree");
  const { violations } = await new AxeBuilder({ page }).analyze();
  expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`)).toEqual([]);
  await page.keyboard.press("ArrowLeft");
  await expect(app.row(fork).locator(".row-main")).toBeFocused();
  await page.keyboard.press("ArrowLeft");
  await expect(app.row(grandchild)).toHaveCount(0);

  // A fork whose parent is put away stands for itself, and only the parent is hidden.
  await app.row(root).locator(".row-main").focus();
  await page.keyboard.press("e");
  await expect(app.row(root)).toHaveCount(0);
  await expect(app.row(fork)).toHaveAttribute("aria-level", "1");
  await expect(app.byId("hidden-count")).toHaveText("1 archived");
});

test("a list is narrowed to a model, and says what that hides", async ({ app, page, server }) => {
  const first = await server.run({ task: "one" });
  const second = await server.run({ task: "two", model: "offline/other" });
  await page.reload();
  await expect(app.byId("session-row")).toHaveCount(2);
  await app.byId("filter-model").selectOption("offline/other");
  await expect(app.row(first)).toHaveCount(0);
  await expect(app.row(second)).toBeVisible();
  await expect(app.byId("hidden-count")).toHaveText("1 hidden by filter");
  await page.getByRole("button", { name: "Show all" }).click();
  await expect(app.byId("session-row")).toHaveCount(2);
});
