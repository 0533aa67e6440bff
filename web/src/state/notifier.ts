import type { Question } from "../api/acting";
import type { Summary } from "../api/types";
import { sessionTitle } from "../model/format";
import type { Settings } from "./settings";

const usualIcon = "./favicon.svg";
const waitingIcon = "./favicon-waiting.svg";

/** Tells somebody who looks elsewhere: by the page's title and icon, and, if wanted, by the desktop. */
export class Notifier {
  onOpen: (sessionId: string) => void = () => {};
  readonly #settings: Settings;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  /** Puts what the page shows, and how many questions wait, into the tab. */
  mark(title: string | null, waiting: number): void {
    document.title = pageTitle(title, waiting);
    const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    const wanted = waiting > 0 ? waitingIcon : usualIcon;
    if (icon !== null && icon.getAttribute("href") !== wanted) icon.setAttribute("href", wanted);
  }

  asked(question: Question, session: Summary | undefined): void {
    const title = session === undefined ? "A session" : sessionTitle(session);
    this.#show(`Needs approval: ${question.name}`, title, question.sessionId);
  }

  settled(session: Summary): void {
    const how = session.status === "idle" ? "has finished" : "was interrupted";
    this.#show(`The run ${how}`, sessionTitle(session), session.id);
  }

  #show(what: string, body: string, sessionId: string): void {
    if (!this.#settings.state.get().notify || document.visibilityState === "visible") return;
    if (typeof Notification === "undefined" || Notification.permission !== "granted") return;
    try {
      // Several tabs say the same; the tag makes it one.
      const shown = new Notification(what, { body, tag: `threadline-${sessionId}`, icon: usualIcon });
      shown.onclick = () => {
        window.focus();
        this.onOpen(sessionId);
        shown.close();
      };
    } catch {
      // Some phones allow notifications only to service workers.
    }
  }
}

export function pageTitle(title: string | null, waiting: number): string {
  const name = title === null ? "Threadline" : `${title} - Threadline`;
  return waiting > 0 ? `(${waiting}) ${name}` : name;
}
