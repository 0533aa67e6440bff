import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { toHuman, type HumanError } from "../api/problem";
import { byteSize } from "../model/format";
import { indexRows, readWindow, windowRows, type RowIndex } from "../model/textRows";
import { ErrorBanner } from "./Feedback";
import { Styled } from "./Styled";

interface TextViewerProps {
  /** Gives the whole text; called when the viewer opens. */
  load: (signal: AbortSignal) => Promise<Blob>;
  label: string;
  onClose: () => void;
}

type Loaded =
  | { phase: "loading" }
  | { phase: "error"; error: HumanError }
  | { phase: "ready"; text: Blob; index: RowIndex };

const rowHeight = 20;

/** All of a text of any length, of which only the rows on the screen exist. */
export function TextViewer({ load, label, onClose }: TextViewerProps) {
  const frame = useRef<HTMLDivElement>(null);
  const [attempt, setAttempt] = useState(0);
  const [loaded, setLoaded] = useState<Loaded>({ phase: "loading" });
  const source = useRef(load);
  source.current = load;
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    setLoaded({ phase: "loading" });
    const open = async (): Promise<void> => {
      const text = await source.current(signal);
      const index = await indexRows(text, columnsOf(frame.current), signal);
      if (!signal.aborted) setLoaded({ phase: "ready", text, index });
    };
    open().catch((error: unknown) => {
      if (!signal.aborted) setLoaded({ phase: "error", error: toHuman(error) });
    });
    return () => abort.abort();
  }, [attempt]);
  return (
    <div className="viewer" ref={frame} data-testid="viewer" data-phase={loaded.phase}>
      <div className="viewer-bar">
        <span>{barText(loaded)}</span>
        {loaded.phase === "ready" && <SaveLink text={loaded.text} />}
        <button type="button" className="show-all" onClick={onClose}>
          Show less
        </button>
      </div>
      {loaded.phase === "loading" && <div className="viewer-wait" role="status" aria-label={`Loading ${label}`} />}
      {loaded.phase === "error" && (
        <ErrorBanner error={loaded.error} onRetry={() => setAttempt(attempt + 1)} />
      )}
      {loaded.phase === "ready" && <Rows {...loaded} label={label} />}
    </div>
  );
}

function barText(loaded: Loaded): string {
  if (loaded.phase === "loading") return "Loading all of it";
  if (loaded.phase === "error") return "Not loaded";
  const { index, text } = loaded;
  const rows = `${index.rows.toLocaleString("en")} rows, ${byteSize(text.size)}`;
  return index.unlisted === 0 ? rows : `${rows}; the last ${byteSize(index.unlisted)} are not listed here`;
}

/** How many characters fit, so that no row is wider than the page. */
function columnsOf(element: HTMLElement | null): number {
  const width = element?.clientWidth ?? 640;
  return Math.min(400, Math.max(32, Math.floor((width - 36) / 7.9)));
}

function SaveLink({ text }: { text: Blob }) {
  const save = (): void => {
    // As bytes of no kind, so that nothing opens it as what it looks like.
    const url = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = "output.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return (
    <button type="button" className="show-all" onClick={save}>
      Save to a file
    </button>
  );
}

interface RowsProps {
  text: Blob;
  index: RowIndex;
  label: string;
}

function Rows({ text, index, label }: RowsProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: index.rows,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 20,
  });
  const items = virtual.getVirtualItems();
  const windows = useWindows(text, index, items[0]?.index ?? 0, items.at(-1)?.index ?? 0);
  return (
    <div className="viewer-scroll" ref={scroller} tabIndex={0} role="region" aria-label={label}>
      <div className="viewer-rows" style={{ height: virtual.getTotalSize() }}>
        {items.map(({ index: row, start }) => (
          <div key={row} className="viewer-row" style={{ transform: `translateY(${start}px)` }}>
            <Styled text={windows.get(Math.floor(row / windowRows))?.[row % windowRows] ?? ""} />
          </div>
        ))}
      </div>
    </div>
  );
}

/** Keeps the windows between two rows, and no others. */
function useWindows(
  text: Blob,
  index: RowIndex,
  firstRow: number,
  lastRow: number,
): ReadonlyMap<number, string[]> {
  const [windows, setWindows] = useState<ReadonlyMap<number, string[]>>(new Map());
  const first = Math.floor(firstRow / windowRows);
  const last = Math.floor(lastRow / windowRows);
  useEffect(() => {
    let current = true;
    const numbers = Array.from({ length: last - first + 1 }, (_, at) => first + at);
    const read = numbers.map(async (number) => [number, await readWindow(text, index, number)] as const);
    void Promise.all(read).then(
      (pairs) => {
        if (current) setWindows(new Map(pairs));
      },
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [text, index, first, last]);
  return windows;
}
