/** Code with colours. This module and the grammars are loaded when the first code is shown. */

import { common, createLowlight } from "lowlight";

/** A piece of code; nested pieces are flattened, the innermost meaning counts. */
export interface Token {
  text: string;
  kind: string | null;
}

interface Node {
  type: string;
  value?: string;
  properties?: { className?: unknown };
  children?: Node[];
}

/** Longer code is shown without colours: they are not worth a stuttering page. */
export const maxHighlighted = 40_000;

const lowlight = createLowlight(common);

/** Returns null for a language that is not known. */
export function highlight(code: string, language: string): Token[] | null {
  if (code.length > maxHighlighted || !lowlight.registered(language)) return null;
  const tokens: Token[] = [];
  collect(lowlight.highlight(language, code) as Node, null, tokens);
  return tokens;
}

function collect(node: Node, kind: string | null, into: Token[]): void {
  if (node.type === "text") {
    if (node.value !== undefined && node.value !== "") into.push({ text: node.value, kind });
    return;
  }
  const own = className(node) ?? kind;
  for (const child of node.children ?? []) collect(child, own, into);
}

function className(node: Node): string | null {
  const names = node.properties?.className;
  const first: unknown = Array.isArray(names) ? names[0] : undefined;
  return typeof first === "string" ? first.replace(/^hljs-/, "") : null;
}
