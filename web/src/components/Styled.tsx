import { memo } from "react";
import { styleClass, stylePieces } from "../model/ansi";

/** Terminal output: colours are shown, every other control is spelled out. */
export const Styled = memo(function Styled({ text }: { text: string }) {
  const { pieces } = stylePieces(text);
  return (
    <>
      {pieces.map((piece, at) => {
        const name = styleClass(piece.style);
        if (name === "") return piece.text;
        return (
          <span key={at} className={name}>
            {piece.text}
          </span>
        );
      })}
    </>
  );
});
