import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { plural } from "../model/format";
import {
  copiedValue,
  extended,
  pressed,
  toggled,
  treeRows,
  untouched,
  type TreeKey,
  type TreeRow,
  type TreeState,
} from "../model/jsonTree";
import { revealControls } from "../model/text";
import { CopyText } from "./CopyText";
import { Icon } from "./Icon";
import { TextViewer } from "./TextViewer";

interface JsonTreeProps {
  value: unknown;
  label: string;
  /** What was open when the tree was last on the screen. */
  initial?: TreeState | undefined;
  onChange?: (state: TreeState) => void;
}

const keys: ReadonlySet<string> = new Set<TreeKey>([
  "ArrowUp",
  "ArrowDown",
  "ArrowLeft",
  "ArrowRight",
  "Home",
  "End",
]);

/** A JSON value that opens and closes, by hand and by keys, as a tree view does. */
export function JsonTree({ value, label, initial, onChange }: JsonTreeProps) {
  const id = useId();
  const [state, setState] = useState<TreeState>(() => initial ?? untouched(value));
  const [viewed, setViewed] = useState<string | null>(null);
  const rows = useMemo(() => treeRows(value, state), [value, state]);
  const tree = useRef<HTMLDivElement>(null);
  const chosen = rows.find((row) => row.id === state.selected) ?? rows[0];
  const change = (next: TreeState): void => {
    setState(next);
    onChange?.(next);
  };

  const moved = useRef(false);
  useEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    tree.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [state.selected]);

  const activate = (row: TreeRow): void => {
    const at = { ...state, selected: row.id };
    if (row.kind === "value" && row.canOpen) change(toggled(at, row.id, !row.isOpen));
    else if (row.kind === "more" && row.next === "rows") {
      // What was hidden appears behind the row before this one, and the next key leads there.
      change(extended({ ...state, selected: rows[rows.indexOf(row) - 1]?.id ?? row.of }, row));
    } else change(at);
    if (row.kind === "more" && row.next === "viewer") setViewed(row.value as string);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.altKey || event.ctrlKey || event.metaKey || chosen === undefined) return;
    if (keys.has(event.key)) {
      moved.current = true;
      change(pressed(rows, { ...state, selected: chosen.id }, event.key as TreeKey));
    } else if (event.key === "Enter" || event.key === " ") {
      activate(chosen);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div className="json-tree-box">
      <div
        ref={tree}
        className="json-tree"
        role="tree"
        tabIndex={0}
        aria-label={label}
        aria-activedescendant={chosen === undefined ? undefined : `${id}${rows.indexOf(chosen)}`}
        onKeyDown={onKeyDown}
      >
        {rows.map((row, index) => (
          <div
            key={row.id}
            id={`${id}${index}`}
            className="json-row"
            role="treeitem"
            data-testid="json-row"
            data-kind={row.kind}
            data-path={short(row.path)}
            aria-level={row.depth}
            aria-posinset={row.position}
            aria-setsize={row.siblings}
            aria-selected={row === chosen}
            {...(row.kind === "value" && row.canOpen ? { "aria-expanded": row.isOpen } : {})}
            style={{ paddingInlineStart: `${Math.min(row.depth, 24) * 12 - 8}px` }}
            onClick={() => {
              // A click that ends a selection of text is no wish to open anything.
              if (getSelection()?.isCollapsed !== false) activate(row);
            }}
          >
            <Row row={row} />
          </div>
        ))}
      </div>
      {chosen !== undefined && (
        <div className="json-chosen">
          <code>{short(chosen.path)}</code>
          {"value" in chosen && <CopyText text={() => copiedValue(chosen.value)} name="Copy value" />}
          <CopyText text={chosen.path} name="Copy path" />
        </div>
      )}
      {viewed !== null && (
        <TextViewer
          load={() => Promise.resolve(new Blob([viewed]))}
          label={`${label}, one string`}
          onClose={() => setViewed(null)}
        />
      )}
    </div>
  );
}

function Row({ row }: { row: TreeRow }) {
  switch (row.kind) {
    case "end":
      return <span className="quiet">More is open than is shown here. Close something above.</span>;
    case "more":
      return <span className="json-more">{moreText(row)}</span>;
    case "text":
      return <span className="json-text">{revealControls(row.text)}</span>;
    case "value":
      return (
        <>
          <span className="json-mark" data-open={row.isOpen}>
            {row.canOpen && <Icon name="chevron" />}
          </span>
          {row.key !== null && <span className="json-key">{keyText(row.key)}</span>}
          <span className={`json-value json-${row.type}`}>{valueText(row)}</span>
        </>
      );
  }
}

/** Names and paths are cut where they are shown, not where they are copied. */
const nameChars = 300;

function short(name: string): string {
  return revealControls(name.length > nameChars ? `${name.slice(0, nameChars)}\u2026` : name);
}

function keyText(key: string | number): string {
  return `${short(typeof key === "number" ? String(key) : JSON.stringify(key).slice(1, -1))}: `;
}

function valueText(row: TreeRow & { kind: "value" }): string {
  if (row.type === "array") {
    const { length } = row.value as unknown[];
    return length === 0 ? "[]" : `[${plural(length, "item")}]`;
  }
  if (row.type === "object") {
    const size = Object.keys(row.value as object).length;
    return size === 0 ? "{}" : `{${plural(size, "field")}}`;
  }
  const long = row.type === "string" && row.canOpen;
  const size = long ? ` (${plural((row.value as string).length, "character")})` : "";
  return revealControls(row.preview) + size;
}

function moreText(row: TreeRow & { kind: "more" }): string {
  if (row.next === "viewer") return `Show all ${plural((row.value as string).length, row.unit)}`;
  return `Show more: ${plural(row.hidden, row.unit)} not shown`;
}
