import { useEffect, useRef, useState, type Ref } from "react";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon } from "./Icon";

const waitMs = 150;

interface SearchBoxProps {
  field: Ref<HTMLInputElement>;
  onDown: () => void;
}

export function SearchBox({ field, onDown }: SearchBoxProps) {
  const { list } = useApp();
  const { query, searching } = useStore(list.state);
  const [text, setText] = useState(query.query);
  const asked = useRef(query.query);
  useEffect(() => {
    const wanted = text.trim();
    if (wanted === asked.current) return;
    const timer = setTimeout(() => {
      asked.current = wanted;
      void list.search({ query: wanted });
    }, waitMs);
    return () => clearTimeout(timer);
  }, [text, list]);
  useEffect(() => {
    // The filters were taken back elsewhere.
    if (query.query === asked.current) return;
    asked.current = query.query;
    setText(query.query);
  }, [query.query]);
  return (
    <div className="search" role="search" aria-busy={searching}>
      <Icon name="search" />
      <input
        ref={field}
        type="search"
        data-testid="search"
        placeholder="Search sessions"
        aria-label="Search sessions"
        aria-keyshortcuts="/"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape" && text !== "") {
            event.preventDefault();
            setText("");
          }
          if (event.key !== "ArrowDown") return;
          event.preventDefault();
          onDown();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
