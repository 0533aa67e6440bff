import { createContext, useContext } from "react";

/** The session that a part of the conversation belongs to; its blobs are found through it. */
export const SessionIdContext = createContext<string | null>(null);

export function useSessionId(): string | null {
  return useContext(SessionIdContext);
}
