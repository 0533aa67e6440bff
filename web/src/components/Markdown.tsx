import { memo, useMemo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { safeUrl, splitMarkdown } from "../model/text";
import { Icon } from "./Icon";

// No plug-in turns raw HTML into elements, so it is shown as the text it is.
const plugins = [remarkGfm];

const components: Components = {
  a({ href, children }) {
    const url = safeUrl(href ?? "");
    if (url === null) return <span className="dead-link">{children}</span>;
    return (
      <a href={url} target="_blank" rel="noopener noreferrer nofollow" title={url}>
        {children}
        <Icon name="external" />
      </a>
    );
  },
  // The page loads nothing from elsewhere: an image would tell its host that this was read.
  img({ src, alt }) {
    const url = typeof src === "string" ? safeUrl(src) : null;
    const label = `Image: ${alt === undefined || alt === "" ? "untitled" : alt}`;
    if (url === null) return <span className="dead-link">{label}</span>;
    return (
      <a href={url} target="_blank" rel="noopener noreferrer nofollow" title={url}>
        {label}
        <Icon name="external" />
      </a>
    );
  },
  table({ children }) {
    return (
      <div className="table-scroll" tabIndex={0} role="region" aria-label="Table">
        <table>{children}</table>
      </div>
    );
  },
  input({ checked, type }) {
    return <input type={type} checked={checked === true} disabled readOnly aria-label="Task" />;
  },
};

const Block = memo(function Block({ text }: { text: string }) {
  return (
    <ReactMarkdown remarkPlugins={plugins} components={components}>
      {text}
    </ReactMarkdown>
  );
});

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => splitMarkdown(text), [text]);
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        <Block key={index} text={block} />
      ))}
    </div>
  );
});
