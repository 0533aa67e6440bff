import { useState } from "react";
import { shortId } from "../model/format";
import { Icon } from "./Icon";

export function CopyId({ id, label }: { id: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(id);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch {
      // No clipboard permission: the full id is in the tooltip.
    }
  };
  return (
    <button type="button" className="copy-id" title={id} aria-label={`Copy ${label} ${id}`} onClick={copy}>
      <code>{shortId(id)}</code>
      <Icon name={copied ? "check" : "copy"} />
    </button>
  );
}
