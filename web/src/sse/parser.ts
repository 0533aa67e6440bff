/** One dispatched message of a text/event-stream. `id` is present only when the message set it. */
export interface SseMessage {
  event: string;
  data: string;
  id: string | undefined;
}

/**
 * An incremental parser of text/event-stream bytes. Any split of the bytes gives the same messages:
 * the decoder keeps partial characters, and a CR at the end of one chunk swallows an LF at the start
 * of the next.
 */
export class SseParser {
  /** The server's wish for the reconnection delay, once it said so. */
  retryMs: number | undefined;

  readonly #decoder = new TextDecoder("utf-8");
  #pending: string[] = [];
  #skipLineFeed = false;
  #data: string[] = [];
  #event = "";
  #id: string | undefined;

  feed(bytes: Uint8Array): SseMessage[] {
    const text = this.#decoder.decode(bytes, { stream: true });
    const messages: SseMessage[] = [];
    let start = 0;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      if (unit !== 10 && unit !== 13) {
        this.#skipLineFeed = false;
        continue;
      }
      if (unit === 10 && this.#skipLineFeed) {
        this.#skipLineFeed = false;
        start = at + 1;
        continue;
      }
      this.#skipLineFeed = unit === 13;
      this.#pending.push(text.slice(start, at));
      start = at + 1;
      const line = this.#pending.join("");
      this.#pending = [];
      this.#line(line, messages);
    }
    if (start < text.length) this.#pending.push(text.slice(start));
    return messages;
  }

  #line(line: string, messages: SseMessage[]): void {
    if (line === "") {
      this.#dispatch(messages);
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    this.#field(field, value);
  }

  #field(field: string, value: string): void {
    switch (field) {
      case "data":
        this.#data.push(value);
        break;
      case "event":
        this.#event = value;
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
      case "retry":
        if (/^[0-9]+$/.test(value)) this.retryMs = Number(value);
        break;
      default:
        break;
    }
  }

  #dispatch(messages: SseMessage[]): void {
    if (this.#data.length > 0) {
      messages.push({
        event: this.#event === "" ? "message" : this.#event,
        data: this.#data.join("\n"),
        id: this.#id,
      });
    }
    this.#data = [];
    this.#event = "";
    this.#id = undefined;
  }
}
