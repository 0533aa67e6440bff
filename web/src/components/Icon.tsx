const paths = {
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3 3",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3 3 13z",
  archive: "M2 3.5h12v3H2zM3 6.5v6h10v-6M6.5 9.2h3",
  restore: "M2 3.5h12v3H2zM3 6.5v6h10v-6M8 11.5V8.2M6.4 9.6 8 8l1.6 1.6",
  trash: "M3 4.5h10M6.5 4V2.5h3V4M4.5 4.5l.5 9h6l.5-9M6.8 7v4M9.2 7v4",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  check: "M3 8.5l3.2 3.2L13 4.8",
  shield: "M8 2l5 2v4c0 3-2.2 5-5 6-2.8-1-5-3-5-6V4z",
  cross: "M4 4l8 8M12 4l-8 8",
  chevron: "M6 4l4 4-4 4",
  down: "M8 3v10M4 9l4 4 4-4",
  arrow: "M3 8h9M9 4.5L12.5 8 9 11.5",
  up: "M8 13V3M4 7l4-4 4 4",
  external: "M9 3h4v4M13 3L7.5 8.5M11 9.5V13H3V5h3.5",
  stop: "M4.5 4.5h7v7h-7z",
  send: "M3 8h9M8.5 4.5L12 8l-3.5 3.5",
  warning: "M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.3",
  tool: "M10.5 2.6a3.2 3.2 0 0 0-3 4.3L2.8 11.6l1.6 1.6 4.7-4.7a3.2 3.2 0 0 0 4.2-3.9L11.4 6.5 9.5 4.6z",
  panel: "M2.5 3h11v10h-11zM10 3v10",
  list: "M3 4h10M3 8h10M3 12h6",
  chat: "M2.5 3h11v8H7l-3 2.5V11H2.5z",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1M11.5 4.5l1.1-1.1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  auto: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
