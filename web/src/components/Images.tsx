import { useEffect, useRef, useState } from "react";
import { api } from "../api/client";
import type { ContentPart } from "../api/types";
import { useSessionId } from "./SessionIdContext";

/** Kinds that are pictures and nothing else; an SVG is a document. */
const shown = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);

interface ImagesProps {
  content: readonly ContentPart[];
  /** What the pictures are part of, for those who do not see them. */
  of: string;
}

export function Images({ content, of }: ImagesProps) {
  const images = content.filter((part) => part.type === "image" && part.blob !== undefined);
  if (images.length === 0) return null;
  return (
    <div className="images">
      {images.map((part, at) => (
        <Picture key={at} part={part} label={`Image ${at + 1} of ${images.length} in ${of}`} />
      ))}
    </div>
  );
}

function Picture({ part, label }: { part: ContentPart; label: string }) {
  const session = useSessionId();
  const [failed, setFailed] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  const kind = part.mediaType ?? "unknown";
  if (session === null || part.blob === undefined || !shown.has(kind) || failed) {
    return (
      <p className="image-gone" data-testid="image-gone">
        {failed ? `${label} cannot be shown: it is gone or damaged.` : `${label}, of the kind ${kind}, is not shown here.`}
      </p>
    );
  }
  const source = api.blobUrl(session, part.blob);
  return (
    <>
      <button type="button" className="image-button" aria-label={`Enlarge: ${label}`} onClick={() => setOpen(true)}>
        <img src={source} alt={label} loading="lazy" decoding="async" onError={() => setFailed(true)} />
      </button>
      {open && (
        <dialog ref={dialog} className="image-dialog" aria-label={label} onClose={() => setOpen(false)} onClick={() => dialog.current?.close()}>
          <img src={source} alt={label} />
          <button type="button" className="button" autoFocus>
            Close
          </button>
        </dialog>
      )}
    </>
  );
}
