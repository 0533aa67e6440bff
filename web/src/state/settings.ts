import { Store } from "./store";

export type Theme = "auto" | "light" | "dark";
export type Density = "comfortable" | "compact";

export interface SettingsState {
  theme: Theme;
  density: Density;
  /** Wanted by the reader; the browser may have been told otherwise since. */
  notify: boolean;
}

const key = "threadline.settings";
const oldThemeKey = "threadline.theme";
const usual: SettingsState = { theme: "auto", density: "comfortable", notify: false };

/** What a reader has chosen for this browser. It is kept here and nowhere else. */
export class Settings {
  readonly state = new Store<SettingsState>(saved());

  constructor() {
    apply(this.state.get());
    // Another tab of the same browser.
    globalThis.addEventListener?.("storage", (event) => {
      if (event.key !== key) return;
      this.state.set(saved());
      apply(this.state.get());
    });
  }

  choose(change: Partial<SettingsState>): void {
    this.state.patch(change);
    apply(this.state.get());
    try {
      localStorage.setItem(key, JSON.stringify(this.state.get()));
    } catch {
      // Without storage the choice lasts until the page is closed.
    }
  }

  /** Asks the browser for permission; only ever after a click, as browsers demand. */
  async wantNotifications(): Promise<NotificationPermission> {
    if (typeof Notification === "undefined") return "denied";
    const permission = await Notification.requestPermission();
    this.choose({ notify: permission === "granted" });
    return permission;
  }
}

function saved(): SettingsState {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? "{}");
    const theme = localStorage.getItem(oldThemeKey);
    return { ...usual, ...valid({ theme }), ...valid(found) };
  } catch {
    return usual;
  }
}

function valid(found: unknown): Partial<SettingsState> {
  if (found === null || typeof found !== "object") return {};
  const { theme, density, notify } = found as Record<string, unknown>;
  return {
    ...(theme === "auto" || theme === "light" || theme === "dark" ? { theme } : {}),
    ...(density === "comfortable" || density === "compact" ? { density } : {}),
    ...(typeof notify === "boolean" ? { notify } : {}),
  };
}

function apply({ theme, density }: SettingsState): void {
  const root = globalThis.document?.documentElement;
  if (root === undefined) return;
  if (theme === "auto") delete root.dataset["theme"];
  else root.dataset["theme"] = theme;
  root.dataset["density"] = density;
}
