import { describe, expect, it } from "vitest";
import { SseParser, type SseMessage } from "../src/sse/parser";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

function parse(chunks: Uint8Array[]): SseMessage[] {
  const parser = new SseParser();
  return chunks.flatMap((chunk) => parser.feed(chunk));
}

const sample = [
  "retry: 1000\n\n",
  ": keep-alive\n\n",
  'event: view\ndata: {"seq":0,"patches":[]}\n\n',
  'id: 0\nevent: assistant/chunk\ndata: {"text":"gr\u00fc\u00df \u{1f9f5} \u4f60\u597d"}\n\n',
  "data: first\ndata: second\n\n",
  "data\n\n",
  "event: empty\n\n",
  "data:no space\nid: 7\n\n",
].join("");

const expected: SseMessage[] = [
  { event: "view", data: '{"seq":0,"patches":[]}', id: undefined },
  { event: "assistant/chunk", data: '{"text":"gr\u00fc\u00df \u{1f9f5} \u4f60\u597d"}', id: "0" },
  { event: "message", data: "first\nsecond", id: undefined },
  { event: "message", data: "", id: undefined },
  { event: "message", data: "no space", id: "7" },
];

describe("SseParser", () => {
  for (const [name, ending] of [["LF", "\n"], ["CRLF", "\r\n"], ["CR", "\r"]] as const) {
    const bytes = encode(sample.replaceAll("\n", ending));

    it(`gives the same messages for every cut point with ${name}`, () => {
      for (let cut = 0; cut <= bytes.length; cut++) {
        expect(parse([bytes.slice(0, cut), bytes.slice(cut)])).toEqual(expected);
      }
    });

    it(`gives the same messages byte by byte with ${name}`, () => {
      expect(parse(Array.from(bytes, (byte) => Uint8Array.of(byte)))).toEqual(expected);
    });
  }

  it("cuts a CRLF in two without inventing an empty line", () => {
    expect(parse([encode("data: a\r"), encode("\ndata: b\r"), encode("\n\r"), encode("\n")])).toEqual([
      { event: "message", data: "a\nb", id: undefined },
    ]);
  });

  it("dispatches as soon as the blank line is there", () => {
    const parser = new SseParser();
    expect(parser.feed(encode("data: a\n"))).toEqual([]);
    expect(parser.feed(encode("\n"))).toHaveLength(1);
  });

  it("drops a message that the end of the stream cuts off", () => {
    expect(parse([encode("data: whole\n\ndata: half\n")])).toHaveLength(1);
  });

  it("does not carry an id over to the next message", () => {
    const [, second] = parse([encode("id: 3\ndata: a\n\ndata: b\n\n")]);
    expect(second?.id).toBeUndefined();
  });

  it("remembers a valid retry and ignores an invalid one", () => {
    const parser = new SseParser();
    parser.feed(encode("retry: 1500\n\nretry: soon\n\n"));
    expect(parser.retryMs).toBe(1500);
  });

  it("strips a byte order mark and ignores unknown fields", () => {
    const bom = Uint8Array.of(0xef, 0xbb, 0xbf);
    expect(parse([bom, encode("data: a\nfoo: bar\n\n")])).toEqual([
      { event: "message", data: "a", id: undefined },
    ]);
  });

  it("ignores an id that contains a NUL", () => {
    expect(parse([encode("id: 1\u00002\ndata: a\n\n")])[0]?.id).toBeUndefined();
  });
});
