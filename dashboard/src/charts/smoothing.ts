/** Exponential smoothing as TensorBoard does it: debiased, so that the first values count in full.
 *
 * `weight` is that of the past, 0 to below 1, from one usual distance of `xs` to the next: where points are sparse, as
 * in a thinned history or after a gap, the past counts less. What is no number stays so and does not disturb what comes
 * after; a run of one and the same value is left alone.
 */
export function smooth(
  values: readonly (number | null)[],
  weight: number,
  xs: readonly number[] = values.map((_, at) => at),
): (number | null)[] {
  const numbers = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (weight <= 0 || numbers.every((value) => value === numbers[0])) return [...values];
  const usual = usualDistance(xs);
  let [last, all, before] = [0, 0, NaN];
  return values.map((value, at) => {
    const x = xs[at] ?? NaN;
    const past = weight ** (Number.isNaN(before) ? 1 : Math.max(1, (x - before) / usual));
    before = x;
    if (value === null || !Number.isFinite(value)) return null;
    last = last * past + (1 - past) * value;
    all = all * past + (1 - past);
    return last / all;
  });
}

/** That of the dense part: the latest third of a history is never thinned. */
function usualDistance(xs: readonly number[]): number {
  const distances = xs.slice(1).map((x, at) => x - (xs[at] ?? x));
  distances.sort((one, other) => one - other);
  return distances[Math.floor(distances.length / 4)] || 1;
}
