/** How a training loop begins to report. */

export const INSTRUMENT = `pip install ./reporter    # in a checkout of trainjob-visibility

from trainjob_progress import report

with report(total_steps=1000) as r:
    for batch in loader:
        r.step(loss=train_on(batch))`;
