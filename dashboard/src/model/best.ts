/** Which value of a metric is the best, where its name tells. */

import { isLoss, wordsOf } from "./main-metric";

const LOWER = /^(err|errors?|perplexity|ppl|nll|r?mse|mae|wer|cer|fid)$/;
const HIGHER = /^(acc\d?|accuracy|precision|recall|f1|bleu\d?|rouge\w?|auc|auroc|map|miou|iou|rewards?|psnr|ssim)$/;

export interface Best {
  readonly name: "lowest" | "highest";
  readonly value: number;
}

/** Of the finite values; undefined when there is none, and when the name does not tell. */
export function bestOf(metric: string, values: readonly number[]): Best | undefined {
  const has = (sought: RegExp) => wordsOf(metric).some((word) => sought.test(word));
  const name = isLoss(metric) || has(LOWER) ? "lowest" : has(HIGHER) ? "highest" : undefined;
  if (!name) return undefined;
  const better = name === "lowest" ? Math.min : Math.max;
  const value = values.reduce((best, one) => (Number.isFinite(one) ? better(best, one) : best), NOTHING[name]);
  if (!Number.isFinite(value)) return undefined;
  // Earlier values have seven digits (docs/document.md): a last one that is the same to these is the best.
  const last = values.at(-1) ?? NaN;
  return { name, value: last.toPrecision(DIGITS) === value.toPrecision(DIGITS) ? last : value };
}

const DIGITS = 7;
const NOTHING = { lowest: Infinity, highest: -Infinity };
