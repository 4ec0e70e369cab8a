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
  /** The owner whose jobs are "mine"; empty when nobody was chosen. */
  readonly me: string;
  readonly views: readonly SavedView[];
}

/** A list as it was arranged and narrowed, under a name. */
export interface SavedView {
  readonly name: string;
  /** Of the address, what is after "#/?". */
  readonly query: string;
}

const KEY = "trainjob-visibility";
const MOST_NAMESPACES = 8;
const MOST_PINNED = 50;
export const MOST_VIEWS = 30;
const USUAL: Settings = {
  theme: "auto",
  zone: undefined,
  namespaces: [],
  pinned: [],
  notifies: false,
  me: "",
  views: [],
};

/** `otherwise` where the browser keeps nothing. */
export function loadSettings(otherwise: Settings = USUAL): Settings {
  try {
    const text = localStorage.getItem(KEY);
    if (text === null) return otherwise;
    const kept = JSON.parse(text) as Record<string, unknown>;
    const { theme, zone, namespaces, pinned, notifies, me, views } = kept;
    return {
      theme: theme === "light" || theme === "dark" ? theme : "auto",
      zone: typeof zone === "string" && isZone(zone) ? zone : undefined,
      namespaces: texts(namespaces, MOST_NAMESPACES),
      pinned: texts(pinned, MOST_PINNED),
      notifies: notifies === true,
      me: typeof me === "string" ? me : "",
      views: Array.isArray(views) ? views.filter(isView).slice(0, MOST_VIEWS) : [],
    };
  } catch {
    return otherwise;
  }
}

function isView(kept: unknown): kept is SavedView {
  const { name, query } = (kept ?? {}) as Record<string, unknown>;
  return typeof name === "string" && typeof query === "string";
}

function texts(kept: unknown, most: number): string[] {
  return Array.isArray(kept) ? kept.filter((one): one is string => typeof one === "string").slice(0, most) : [];
}

/** Whether the browser has kept what was saved last; else it holds until the page is closed. */
export let isKept = true;

export function saveSettings(settings: Settings): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
    isKept = true;
  } catch {
    isKept = false;
  }
}

export function remember(settings: Settings, namespace: string): Settings {
  const others = settings.namespaces.filter((name) => name !== namespace);
  return { ...settings, namespaces: [namespace, ...others].slice(0, MOST_NAMESPACES) };
}

/** What is chosen here, with what other tabs have chosen since `before`. */
export function merged(before: Settings, chosen: Settings): Settings {
  const changes = Object.entries(chosen).filter(([name, value]) => before[name as keyof Settings] !== value);
  return { ...loadSettings(before), ...(Object.fromEntries(changes) as Partial<Settings>) };
}

/** Calls `listener` when another tab has chosen something. Returns how to end it. */
export function onSettingsOfOtherTabs(listener: () => void): () => void {
  const listen = ({ key }: StorageEvent) => {
    if (key === KEY || key === null) listener();
  };
  window.addEventListener("storage", listen);
  return () => window.removeEventListener("storage", listen);
}

function isZone(zone: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
    return true;
  } catch {
    return false;
  }
}

/** In place of one of the same name, if there is one. */
export function saveView(settings: Settings, view: SavedView): Settings {
  return { ...settings, views: [...removeView(settings, view.name).views, view] };
}

export function removeView(settings: Settings, name: string): Settings {
  return { ...settings, views: settings.views.filter((one) => one.name !== name) };
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
