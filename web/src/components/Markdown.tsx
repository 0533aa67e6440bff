import { isValidElement, memo, useMemo, type ReactNode } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { hostOf, revealProse, safeUrl, splitMarkdown } from "../model/text";
import { CappedText } from "./CappedText";
import { CodeBlock } from "./CodeBlock";
import { Icon } from "./Icon";

// No plug-in turns raw HTML into elements, so it is shown as the text it is.
const plugins = [remarkGfm];

/** Beyond these a block is no prose that anybody formatted. */
const maxBlock = 60_000;
/** Marks take time that grows with the square of their number when they are set against a reader. */
const maxMarks = 3000;

function isProse(block: string): boolean {
  if (block.length > maxBlock) return false;
  return block.length < maxMarks || (block.match(/[*_~`[\]<>|!]/g)?.length ?? 0) <= maxMarks;
}

function isFence(block: string): boolean {
  return /^ {0,3}(`{3}|~{3})/.test(block);
}

function componentsFor(growing: boolean): Components {
  return {
    a({ href, children }) {
      const url = safeUrl(href ?? "");
      if (url === null) return <span className="dead-link">{children}</span>;
      return (
        <ExternalLink url={url} said={textOf(children)}>
          {children}
        </ExternalLink>
      );
    },
    // The page loads nothing from elsewhere: an image would tell its host that this was read.
    img({ src, alt }) {
      const url = typeof src === "string" ? safeUrl(src) : null;
      const label = `Image: ${alt === undefined || alt === "" ? "untitled" : alt}`;
      if (url === null) return <span className="dead-link">{label}</span>;
      return (
        <ExternalLink url={url} said={label}>
          {label}
        </ExternalLink>
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
    pre({ children }) {
      const code = isValidElement<{ className?: string; children?: ReactNode }>(children) ? children.props : {};
      const language = /language-([\w+#.-]{1,40})/.exec(code.className ?? "")?.[1] ?? null;
      const text = textOf(code.children ?? children);
      return <CodeBlock code={text.replace(/\n$/, "")} language={language} growing={growing} />;
    },
  };
}

const settledComponents = componentsFor(false);
const growingComponents = componentsFor(true);

function textOf(node: ReactNode): string {
  if (typeof node === "string" || typeof node === "number") return String(node);
  if (Array.isArray(node)) return node.map(textOf).join("");
  return isValidElement<{ children?: ReactNode }>(node) ? textOf(node.props.children) : "";
}

interface ExternalLinkProps {
  url: string;
  /** What the link says of itself. */
  said: string;
  children: ReactNode;
}

/** A link names the host that it really leads to, whatever it says. */
function ExternalLink({ url, said, children }: ExternalLinkProps) {
  const host = hostOf(url);
  return (
    <a href={url} target="_blank" rel="noopener noreferrer nofollow" title={url}>
      {children}
      {host !== "" && !namesHost(said, host) && <span className="link-host"> ({host})</span>}
      <Icon name="external" />
      <span className="visually-hidden"> (opens a new tab)</span>
    </a>
  );
}

function namesHost(said: string, host: string): boolean {
  const bare = said.replace(/^https?:\/\//, "");
  return bare === host || bare.startsWith(`${host}/`);
}

interface BlockProps {
  text: string;
  growing: boolean;
}

const Block = memo(function Block({ text, growing }: BlockProps) {
  if (!isFence(text) && !isProse(text)) {
    return <CappedText text={text} label="Unformatted text" lines={40} chars={8000} as="prose" className="unformatted" />;
  }
  return (
    <ReactMarkdown remarkPlugins={plugins} components={growing ? growingComponents : settledComponents}>
      {text}
    </ReactMarkdown>
  );
});

interface MarkdownProps {
  text: string;
  /** More of it is still coming, so that its last block is not yet what it will be. */
  growing?: boolean;
}

export const Markdown = memo(function Markdown({ text, growing = false }: MarkdownProps) {
  const blocks = useMemo(() => splitMarkdown(revealProse(text)), [text]);
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        <Block key={index} text={block} growing={growing && index === blocks.length - 1} />
      ))}
    </div>
  );
});
