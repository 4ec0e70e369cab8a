/** Which of a job's metrics stands for it in a list. */

interface Metric {
  readonly name: string;
  readonly value: string;
}

// In this order, as the server judges divergence; then whatever has loss in its name; then what is reported first.
const FIRST = ["loss", "train_loss", "train/loss", "training_loss", "eval_loss", "val_loss"];
const SELDOM =
  /(^|[_/.\s-])(lr|learning_?rate|epoch|step|time|seconds|memory|mem|loss_?scale|samples?_per_second|steps_per_second)$/i;

// Of what is set and not measured the steps themselves are of interest. Lightning appends the optimizer: lr-AdamW.
const SCHEDULE = /(^|[_/.\s-])(lr|learning_?rate|momentum|weight_?decay|epoch|step)([_/.\s-]|$)/i;

export const isSchedule = (name: string) => SCHEDULE.test(name);

/** "eval/topAcc" has eval, top and acc, also topacc as it is written. */
export const wordsOf = (name: string): string[] =>
  [name, name.replace(/([a-z])([A-Z])/g, "$1 $2")].flatMap((text) => text.toLowerCase().split(/[^a-z0-9]+/));

/** Not what scales it, as of mixed precision. */
export const isLoss = (name: string): boolean =>
  wordsOf(name).some((word) => /loss(es)?$/.test(word)) && !/loss[_\s-]?scal/i.test(name);

export function mainMetric(metrics: readonly Metric[]): Metric | undefined {
  for (const name of FIRST) {
    const found = metrics.find((metric) => metric.name.toLowerCase() === name);
    if (found) return found;
  }
  return (
    metrics.find((metric) => isLoss(metric.name)) ?? metrics.find((metric) => !SELDOM.test(metric.name)) ?? metrics[0]
  );
}
