/** Colours of curves: told apart by most kinds of colour vision, on light and on dark (after Okabe and Ito). */

const LIGHT = ["#0b7285", "#c2410c", "#6d28d9", "#15803d", "#be185d", "#a16207", "#1d4ed8", "#57534e"];
const DARK = ["#4fc3d9", "#ff9d6c", "#b79bff", "#6fd08c", "#ff8fbe", "#e3c15a", "#86aaff", "#b8b2ab"];

/** Of the metrics in one chart, where colours tell jobs apart. */
export const DASHES: readonly (readonly number[])[] = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

export interface Palette {
  readonly lines: readonly string[];
  readonly text: string;
  readonly grid: string;
  readonly mark: string;
  readonly bad: string;
}

export function palette(isDark: boolean): Palette {
  return isDark
    ? { lines: DARK, text: "#9aa4ab", grid: "#ffffff14", mark: "#ffffff40", bad: "#ff7b72" }
    : { lines: LIGHT, text: "#5c666d", grid: "#0000000f", mark: "#00000040", bad: "#c62828" };
}

/** The same colour, faint. */
export const faint = (colour: string, alpha = "38") => colour + alpha;
