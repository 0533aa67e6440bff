import { useRef } from "react";
import type { ImageLimits } from "../api/acting";
import { byteSize } from "../model/format";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon } from "./Icon";

/** The images that go with the next message. */
export function AttachmentList() {
  const { composer } = useApp();
  const { images } = useStore(composer.state);
  if (images.length === 0) return null;
  return (
    <ul className="attachments" aria-label="Images">
      {images.map((image) => (
        <li key={image.id} data-testid="attachment">
          <img src={image.url} alt={image.name} />
          <span className="attachment-name">
            {image.name}
            <span className="quiet">{byteSize(image.bytes)}</span>
          </span>
          <button
            type="button"
            className="icon-button"
            aria-label={`Remove ${image.name}`}
            onClick={() => composer.detach(image.id)}
          >
            <Icon name="cross" />
          </button>
        </li>
      ))}
    </ul>
  );
}

interface AttachButtonProps {
  limits: ImageLimits;
  onFiles: (files: readonly File[]) => void;
}

export function AttachButton({ limits, onFiles }: AttachButtonProps) {
  const field = useRef<HTMLInputElement>(null);
  const label = `Attach images: up to ${limits.count}, ${byteSize(limits.bytes)} each. Or paste or drop them`;
  return (
    <>
      <button
        type="button"
        className="icon-button"
        aria-label={label}
        title={label}
        onClick={() => field.current?.click()}
      >
        <Icon name="image" />
      </button>
      <input
        ref={field}
        type="file"
        hidden
        multiple
        accept={limits.mediaTypes.join(",")}
        aria-label="Images"
        data-testid="attach"
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          event.target.value = "";
        }}
      />
    </>
  );
}
