/** A curve so small that only its form is seen: the path of an SVG, and where its last point lies. */

export interface Spark {
  readonly path: string;
  readonly end: readonly [x: number, y: number] | undefined;
}

const INSET = 2; // room for the line's width and the last point

export function spark(xs: readonly number[], ys: readonly number[], width: number, height: number): Spark {
  const shown = xs.flatMap((x, at) =>
    Number.isFinite(ys[at]) && Number.isFinite(x) ? [[x, ys[at] as number] as const] : [],
  );
  if (shown.length === 0) return { path: "", end: undefined };
  const [left, right] = range(shown.map(([x]) => x));
  const [low, high] = range(shown.map(([, y]) => y));
  const px = (x: number) => INSET + (right === left ? 1 : (x - left) / (right - left)) * (width - 2 * INSET);
  const py = (y: number) => INSET + (high === low ? 0.5 : (high - y) / (high - low)) * (height - 2 * INSET);
  const points = shown.map(([x, y]) => [round(px(x)), round(py(y))] as const);
  // When the last value is not finite, an older one must not look like it.
  const end = Number.isFinite(ys.at(-1)) ? points.at(-1) : undefined;
  return { path: `M${points.map(([x, y]) => `${x} ${y}`).join("L")}`, end };
}

function range(values: readonly number[]): [number, number] {
  let least = Infinity;
  let most = -Infinity;
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return [least, most];
}

const round = (value: number) => Math.round(value * 10) / 10;
