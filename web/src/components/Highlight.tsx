import type { Piece } from "../model/match";

export function Highlight({ pieces }: { pieces: readonly Piece[] }) {
  return pieces.map((piece, at) => (piece.hit ? <mark key={at}>{piece.text}</mark> : piece.text));
}
