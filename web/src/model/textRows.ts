/**
 * A long text as rows of bounded length that are read in windows, so that neither a line of ten
 * megabytes nor a million lines ever stand on the page. The bytes stay in a Blob, outside of the
 * script's memory.
 */

/** Rows of one window. */
export const windowRows = 200;

/** Past these nothing more is listed; the whole text can be saved to a file. */
export const maxRows = 1_000_000;
const sliceBytes = 1 << 20;

export interface RowIndex {
  /** Where each row begins, in bytes; one more than there are rows. */
  starts: Uint32Array;
  rows: number;
  /** Bytes that are not listed because there are too many rows. */
  unlisted: number;
}

const newline = 0x0a;

/** Finds the rows of a text: lines, and of long lines pieces of at most `columns` bytes. */
export async function indexRows(text: Blob, columns: number, signal?: AbortSignal): Promise<RowIndex> {
  const found = new Builder(columns);
  for (let at = 0; at < text.size && !found.isFull; at += sliceBytes) {
    signal?.throwIfAborted();
    const bytes = new Uint8Array(await text.slice(at, at + sliceBytes).arrayBuffer());
    found.add(bytes, at);
  }
  return found.finish(text.size);
}

class Builder {
  #starts = new Uint32Array(1024);
  #rows = 0;
  #length = 0;
  /** Whether the next byte begins a row. */
  #atStart = true;
  readonly #columns: number;

  constructor(columns: number) {
    this.#columns = Math.max(columns, 8);
  }

  get isFull(): boolean {
    return this.#rows >= maxRows;
  }

  add(bytes: Uint8Array, offset: number): void {
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at] ?? 0;
      // A character is never cut: its later bytes all look like 10xxxxxx.
      const isCut = this.#length >= this.#columns && (byte & 0xc0) !== 0x80 && byte !== newline;
      if (this.#atStart || isCut) {
        if (this.isFull) return;
        this.#push(offset + at);
      }
      this.#length += 1;
      this.#atStart = byte === newline;
    }
  }

  #push(start: number): void {
    // One place is kept free for the end.
    if (this.#rows + 1 >= this.#starts.length) {
      const larger = new Uint32Array(this.#starts.length * 2);
      larger.set(this.#starts);
      this.#starts = larger;
    }
    this.#starts[this.#rows] = start;
    this.#rows += 1;
    this.#length = 0;
    this.#atStart = false;
  }

  finish(size: number): RowIndex {
    const end = this.isFull ? (this.#starts[this.#rows - 1] ?? 0) : size;
    const rows = this.isFull ? this.#rows - 1 : this.#rows;
    this.#starts[rows] = end;
    return { starts: this.#starts, rows, unlisted: size - end };
  }
}

/** Reads the rows of one window. */
export async function readWindow(text: Blob, index: RowIndex, window: number): Promise<string[]> {
  const first = window * windowRows;
  const last = Math.min(first + windowRows, index.rows);
  const from = index.starts[first] ?? 0;
  const to = index.starts[last] ?? from;
  const bytes = new Uint8Array(await text.slice(from, to).arrayBuffer());
  const decoder = new TextDecoder();
  const rows: string[] = [];
  for (let row = first; row < last; row++) {
    const start = (index.starts[row] ?? 0) - from;
    const end = (index.starts[row + 1] ?? 0) - from;
    rows.push(decoder.decode(bytes.subarray(start, end)).replace(/\r?\n$/, ""));
  }
  return rows;
}
