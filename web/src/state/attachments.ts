import type { ImageInput, ImageLimits } from "../api/acting";
import { byteSize } from "../model/format";

/** An image that goes with the next message. */
export interface Attachment {
  id: number;
  name: string;
  bytes: number;
  mediaType: string;
  /** A data URL, for the preview. */
  url: string;
}

let counter = 0;

/** Reads files that were pasted, dropped or chosen. Says of each that cannot be taken why. */
export async function readImages(
  files: readonly File[],
  limits: ImageLimits,
  have: number,
): Promise<{ taken: Attachment[]; refused: string[] }> {
  const taken: Attachment[] = [];
  const refused: string[] = [];
  for (const file of files) {
    const reason = refusal(file, limits, have + taken.length);
    if (reason !== null) refused.push(reason);
    else taken.push(await read(file));
  }
  return { taken, refused };
}

export function refusal(file: Pick<File, "name" | "type" | "size">, limits: ImageLimits, have: number): string | null {
  const name = file.name === "" ? "The image" : file.name;
  if (!limits.mediaTypes.includes(file.type)) {
    const kinds = limits.mediaTypes.map((type) => type.replace("image/", "").toUpperCase());
    return `${name} is no image that models take: ${kinds.join(", ")}.`;
  }
  if (file.size > limits.bytes) {
    return `${name} has ${byteSize(file.size)}; an image may have ${byteSize(limits.bytes)}.`;
  }
  if (have >= limits.count) return `${name} was left out: a message may have ${limits.count} images.`;
  return null;
}

async function read(file: File): Promise<Attachment> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
  counter += 1;
  const name = file.name === "" ? "Pasted image" : file.name;
  return { id: counter, name, bytes: file.size, mediaType: file.type, url };
}

export function toInput({ mediaType, url }: Attachment): ImageInput {
  // What the server does not take was left out before.
  return { mediaType: mediaType as ImageInput["mediaType"], data: url.slice(url.indexOf(",") + 1) };
}
