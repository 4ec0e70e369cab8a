/** Which value of a metric is the best, where its name tells. */

const LOWER = /loss|error|perplexity|ppl|mse|mae|rmse|\bwer\b|\bcer\b|\bfid\b/i;
const HIGHER = /acc|precision|recall|\bf1|bleu|rouge|auc|\bmap\b|iou|reward|psnr|ssim/i;

export interface Best {
  readonly name: "lowest" | "highest";
  readonly value: number;
}

/** Of the finite values; undefined when there is none, and when the name does not tell. */
export function bestOf(metric: string, values: readonly number[]): Best | undefined {
  const name = LOWER.test(metric) ? "lowest" : HIGHER.test(metric) ? "highest" : undefined;
  if (!name) return undefined;
  const better = name === "lowest" ? Math.min : Math.max;
  const value = values.reduce((best, one) => (Number.isFinite(one) ? better(best, one) : best), NOTHING[name]);
  return Number.isFinite(value) ? { name, value } : undefined;
}

const NOTHING = { lowest: Infinity, highest: -Infinity };
