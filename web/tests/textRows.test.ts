import { describe, expect, it } from "vitest";
import { indexRows, maxRows, readWindow, windowRows } from "../src/model/textRows";

async function rowsOf(text: string, columns = 10): Promise<string[]> {
  const blob = new Blob([text]);
  const index = await indexRows(blob, columns);
  const rows: string[] = [];
  for (let window = 0; window * windowRows < index.rows; window++) rows.push(...(await readWindow(blob, index, window)));
  return rows;
}

describe("rows of a text", () => {
  it("are its lines", async () => {
    expect(await rowsOf("a\n\nb\r\nc\n")).toEqual(["a", "", "b", "c"]);
    expect(await rowsOf("")).toEqual([]);
  });

  it("cut long lines, and never a character", async () => {
    expect(await rowsOf("0123456789abc\nx")).toEqual(["0123456789", "abc", "x"]);
    const text = "\u{1d11e}".repeat(25);
    const rows = await rowsOf(text);
    expect(rows.join("")).toBe(text);
    expect(rows.every((row) => !row.includes("\ufffd"))).toBe(true);
  });

  it("hold every byte of a line of ten megabytes, a window at a time", async () => {
    const blob = new Blob(["x".repeat(10_000_000)]);
    const index = await indexRows(blob, 100);
    expect(index).toMatchObject({ rows: 100_000, unlisted: 0 });
    const last = await readWindow(blob, index, Math.floor((index.rows - 1) / windowRows));
    expect(last.at(-1)).toBe("x".repeat(100));
    expect(last.length).toBeLessThanOrEqual(windowRows);
  });

  it("say how much is not listed", async () => {
    const blob = new Blob(["\n".repeat(maxRows + 50)]);
    const index = await indexRows(blob, 100);
    expect(index.rows).toBe(maxRows - 1);
    expect(index.unlisted).toBe(51);
  });

  it("stop being looked for when nobody wants them any more", async () => {
    await expect(indexRows(new Blob(["x"]), 10, AbortSignal.abort())).rejects.toThrow();
  });
});
