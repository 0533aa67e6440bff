import { memo, useEffect, useState } from "react";
import type { Token } from "../model/highlight";
import { CopyButton } from "./CopyButton";

interface CodeBlockProps {
  code: string;
  language: string | null;
  /** More of it is still coming: colours wait for the end. */
  growing: boolean;
}

type Highlighter = typeof import("../model/highlight");

let loading: Promise<Highlighter> | undefined;
let highlighter: Highlighter | undefined;

const cache = new Map<string, readonly Token[]>();
const maxCached = 200;

function tokensOf(code: string, language: string): readonly Token[] | null {
  if (highlighter === undefined) return null;
  const key = `${language}\n${code}`;
  const known = cache.get(key);
  if (known !== undefined) return known;
  const made = highlighter.highlight(code, language);
  if (made === null) return null;
  if (cache.size >= maxCached) cache.delete(cache.keys().next().value ?? "");
  cache.set(key, made);
  return made;
}

function useTokens(code: string, language: string | null, growing: boolean): readonly Token[] | null {
  const [ready, setReady] = useState(highlighter !== undefined);
  const wanted = language !== null && !growing;
  useEffect(() => {
    if (!wanted || ready) return;
    let current = true;
    loading ??= import("../model/highlight");
    loading.then(
      (module) => {
        highlighter = module;
        if (current) setReady(true);
      },
      // Without its colours the code is still there; the next block tries again.
      () => {
        loading = undefined;
      },
    );
    return () => {
      current = false;
    };
  }, [wanted, ready]);
  return wanted && ready ? tokensOf(code, language) : null;
}

export const CodeBlock = memo(function CodeBlock({ code, language, growing }: CodeBlockProps) {
  const tokens = useTokens(code, language, growing);
  return (
    <div className="code-block">
      <div className="code-bar">
        <span className="code-language">{language ?? "text"}</span>
        <CopyButton text={code} label="Copy code" />
      </div>
      <pre tabIndex={0} role="group" aria-label={language === null ? "Code" : `Code, ${language}`}>
        <code>
          {tokens === null
            ? code
            : tokens.map((token, at) =>
                token.kind === null ? (
                  token.text
                ) : (
                  <span key={at} className={`hl-${token.kind}`}>
                    {token.text}
                  </span>
                ),
              )}
        </code>
      </pre>
    </div>
  );
});
