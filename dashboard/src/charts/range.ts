/** Ends of an axis that uPlot can divide into steps: it adds a step until the end is reached, so a step must not be
 * lost in the rounding of what it is added to, and the length must be a number. */

const LEAST_SHARE = 1e-9; // of the larger end; a double has 1e-16
const LEAST = 1e-12;

/** Values beyond this are as good as infinite: the difference of two of them must not overflow. */
export const LARGEST = 1e300;
export const SMALLEST_ON_LOG = 1e-300;

/** The same ends, or wider ones around the same middle. */
export function divisible(min: number, max: number): [number, number] {
  const least = Math.max(LEAST, LEAST_SHARE * Math.max(Math.abs(min), Math.abs(max)));
  if (max - min >= least) return [min, max];
  const middle = min + (max - min) / 2;
  return [middle - least, middle + least];
}
