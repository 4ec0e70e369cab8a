/** Which of a job's metrics stands for it in a list. */

interface Metric {
  readonly name: string;
  readonly value: string;
}

// In this order, as the server judges divergence; then whatever has loss in its name; then what is reported first.
const FIRST = ["loss", "train_loss", "train/loss", "training_loss", "eval_loss", "val_loss"];
const SELDOM =
  /(^|[_/.\s-])(lr|learning_?rate|epoch|step|time|seconds|memory|mem|samples?_per_second|steps_per_second)$/i;

// Of what is set and not measured the steps themselves are of interest. Lightning appends the optimizer: lr-AdamW.
const SCHEDULE = /(^|[_/.\s-])(lr|learning_?rate|momentum|weight_?decay|epoch|step)([_/.\s-]|$)/i;

export const isSchedule = (name: string) => SCHEDULE.test(name);

export function mainMetric(metrics: readonly Metric[]): Metric | undefined {
  for (const name of FIRST) {
    const found = metrics.find((metric) => metric.name.toLowerCase() === name);
    if (found) return found;
  }
  return (
    metrics.find((metric) => /loss/i.test(metric.name)) ??
    metrics.find((metric) => !SELDOM.test(metric.name)) ??
    metrics[0]
  );
}
