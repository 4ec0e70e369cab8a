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

/** Where a logarithmic axis has its ticks, at most about `most`. uPlot's own add a step until the end is reached, and
 * below 1e-24 the step is none. */
export function logTicks(min: number, max: number, most: number): number[] {
  const [first, last] = [Math.floor(Math.log10(min)), Math.floor(Math.log10(max))];
  if (!Number.isFinite(last - first)) return [];
  const stride = Math.max(1, Math.ceil((last - first) / Math.max(1, most)));
  const digits = (last - first) * 3 <= most ? [1, 2, 5] : [1];
  const ticks: number[] = [];
  for (let power = Math.ceil(first / stride) * stride; power <= last; power += stride) {
    ticks.push(...digits.map((digit) => Number(`${digit}e${power}`)).filter((tick) => tick >= min && tick <= max));
  }
  if (ticks.length > 1 || max / min > 10) return ticks;
  const rough = (max - min) / Math.min(most, 4); // within a decade: as on a linear axis
  const magnitude = Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].find((one) => Number(`${one}e${magnitude}`) >= rough) ?? 10;
  const step = Number(`${unit}e${magnitude}`);
  const count = Math.floor(max / step) - Math.ceil(min / step);
  return Array.from({ length: count + 1 }, (_, at) => Number(((Math.ceil(min / step) + at) * step).toPrecision(12)));
}
