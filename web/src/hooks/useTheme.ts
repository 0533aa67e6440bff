import { useState } from "react";

export type Theme = "auto" | "light" | "dark";

const key = "threadline.theme";
const order: readonly Theme[] = ["auto", "light", "dark"];

function saved(): Theme {
  try {
    const value = localStorage.getItem(key);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto";
  }
}

function apply(theme: Theme): void {
  if (theme === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

export function applySavedTheme(): void {
  apply(saved());
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState(saved);
  const next = (): void => {
    const following = order[(order.indexOf(theme) + 1) % order.length] ?? "auto";
    setTheme(following);
    apply(following);
    try {
      localStorage.setItem(key, following);
    } catch {
      // Without storage the choice lasts until the page is closed.
    }
  };
  return [theme, next];
}
