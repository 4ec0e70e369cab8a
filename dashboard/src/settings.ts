/** What the viewer has chosen for all pages, kept by the browser where it lets us. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";

export type Theme = "auto" | "light" | "dark";

export interface Settings {
  readonly theme: Theme;
  /** An IANA name; undefined is the browser's own zone. */
  readonly zone: string | undefined;
  /** Namespaces whose pages were opened, the latest first. */
  readonly namespaces: readonly string[];
}

const KEY = "trainjob-visibility";
const MOST_NAMESPACES = 8;
const USUAL: Settings = { theme: "auto", zone: undefined, namespaces: [] };

export function loadSettings(): Settings {
  try {
    const { theme, zone, namespaces } = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Record<string, unknown>;
    return {
      theme: theme === "light" || theme === "dark" ? theme : "auto",
      zone: typeof zone === "string" && isZone(zone) ? zone : undefined,
      namespaces: Array.isArray(namespaces)
        ? namespaces.filter((name): name is string => typeof name === "string").slice(0, MOST_NAMESPACES)
        : [],
    };
  } catch {
    return USUAL;
  }
}

export function saveSettings(settings: Settings): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // not kept: they hold until the page is closed
  }
}

export function remember(settings: Settings, namespace: string): Settings {
  const others = settings.namespaces.filter((name) => name !== namespace);
  return { ...settings, namespaces: [namespace, ...others].slice(0, MOST_NAMESPACES) };
}

function isZone(zone: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
    return true;
  } catch {
    return false;
  }
}

export const SettingsContext = createContext<Settings>(USUAL);
export const useSettings = () => useContext(SettingsContext);
