/** Exponential smoothing as TensorBoard does it: debiased, so that the first values count in full.
 *
 * `weight` is that of the past, 0 to below 1. What is no number stays so and does not disturb what comes after;
 * a run of one and the same value is left alone.
 */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  const numbers = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (weight <= 0 || numbers.every((value) => value === numbers[0])) return [...values];
  let last = 0;
  let seen = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    last = last * weight + (1 - weight) * value;
    seen++;
    return last / (1 - weight ** seen);
  });
}
