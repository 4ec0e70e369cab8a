/** A curve so small that only its form is seen: the path of an SVG, and where its last point lies. */

export interface Spark {
  readonly path: string;
  readonly end: readonly [x: number, y: number] | undefined;
}

const INSET = 2; // room for the line's width and the last point

/** What is not finite interrupts the line; a value alone between two such gaps is a dot. */
export function spark(xs: readonly number[], ys: readonly number[], width: number, height: number): Spark {
  const isShown = (at: number) => Number.isFinite(ys[at]) && Number.isFinite(xs[at]);
  const shown = xs.flatMap((x, at) => (isShown(at) ? [[x, ys[at] as number] as const] : []));
  if (shown.length === 0) return { path: "", end: undefined };
  const [left, right] = range(shown.map(([x]) => x));
  const [low, high] = range(shown.map(([, y]) => y));
  const px = (x: number) => round(INSET + (right === left ? 1 : (x - left) / (right - left)) * (width - 2 * INSET));
  const py = (y: number) => round(INSET + (high === low ? 0.5 : (high - y) / (high - low)) * (height - 2 * INSET));
  const path = xs.map((x, at) => {
    if (!isShown(at)) return "";
    const point = `${px(x)} ${py(ys[at] as number)}`;
    if (at > 0 && isShown(at - 1)) return `L${point}`;
    return at + 1 < xs.length && isShown(at + 1) ? `M${point}` : `M${point}h0`;
  });
  const [x, y] = [xs.at(-1) ?? NaN, ys.at(-1) ?? NaN];
  // When the last value is not finite, an older one must not look like it.
  return { path: path.join(""), end: isShown(xs.length - 1) ? [px(x), py(y)] : undefined };
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
