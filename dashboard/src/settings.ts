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
  /** Charts that come first, of every job. */
  readonly pinned: readonly string[];
  /** Whether the browser is to notify of jobs that fail, stall or end. */
  readonly notifies: boolean;
}

const KEY = "trainjob-visibility";
const MOST_NAMESPACES = 8;
const MOST_PINNED = 50;
const USUAL: Settings = { theme: "auto", zone: undefined, namespaces: [], pinned: [], notifies: false };

export function loadSettings(): Settings {
  try {
    const { theme, zone, namespaces, pinned, notifies } = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Record<
      string,
      unknown
    >;
    return {
      theme: theme === "light" || theme === "dark" ? theme : "auto",
      zone: typeof zone === "string" && isZone(zone) ? zone : undefined,
      namespaces: texts(namespaces, MOST_NAMESPACES),
      pinned: texts(pinned, MOST_PINNED),
      notifies: notifies === true,
    };
  } catch {
    return USUAL;
  }
}

function texts(kept: unknown, most: number): string[] {
  return Array.isArray(kept) ? kept.filter((one): one is string => typeof one === "string").slice(0, most) : [];
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

export function togglePinned(settings: Settings, group: string): Settings {
  const others = settings.pinned.filter((one) => one !== group);
  return {
    ...settings,
    pinned: others.length < settings.pinned.length ? others : [...others, group].slice(-MOST_PINNED),
  };
}

export const SettingsContext = createContext<Settings>(USUAL);
export const useSettings = () => useContext(SettingsContext);
export const ChooseSettings = createContext<(settings: Settings) => void>(() => undefined);
export const useChooseSettings = () => useContext(ChooseSettings);
