import type { LineStyle } from "../charts/line-chart";

/** A piece of the line that it stands for. */
export function Swatch({ colour, dash }: LineStyle) {
  const style = dash.length === 0 ? "solid" : (dash[0] ?? 0) > 3 ? "dashed" : "dotted";
  return <span class="swatch" style={{ borderTop: `3px ${style} ${colour}` }} aria-hidden="true" />;
}
