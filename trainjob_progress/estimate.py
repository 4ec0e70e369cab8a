"""How fast a run goes, from what was seen of it. Pure: the caller brings the time."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


MAX_SAMPLES = 64  # a sample every 1/64 of the run is fine enough for a half


class Pace:
    """Steps per second over the later half of the run so far.

    The half forgets a slow start (compilation, cold caches) without being thrown off by the evaluation
    between epochs, which a mean over the last seconds alone would forget as well. Counting starts at the
    first step seen, not at 0: a resumed run begins at step k (workloads-and-protocols.md, section 4).
    """

    __slots__ = ("_samples", "_spacing_s")

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []
        self._spacing_s = 0.0

    def observe(self, at_s: float, step: int) -> None:
        """Note that `step` was reached at `at_s` of a monotonic clock. Keeps at most MAX_SAMPLES."""
        samples = self._samples
        if samples and step < samples[-1][1]:
            samples = []  # counting began again: nothing seen before says how fast this goes
            self._spacing_s = 0.0
        if samples and at_s - samples[-1][0] < self._spacing_s:
            return
        samples = [*samples, (at_s, step)]
        if len(samples) > MAX_SAMPLES:
            samples = samples[::2]
            self._spacing_s = (samples[-1][0] - samples[0][0]) / len(samples)
        self._samples = samples  # replaced, never changed: another thread may be reading

    def steps_per_s(self, at_s: float, step: int) -> Optional[float]:
        """None until two different steps have been seen."""
        samples = self._samples
        if not samples:
            return None
        middle_s = (samples[0][0] + at_s) / 2
        since_s, since_step = samples[0]
        for sample_s, sample_step in samples:
            if sample_s > middle_s:
                break
            since_s, since_step = sample_s, sample_step
        if step <= since_step:
            since_s, since_step = samples[0]  # nothing moved in the later half
        if step <= since_step or at_s <= since_s:
            return None
        return (step - since_step) / (at_s - since_s)


def find_share(
    *,
    step: Optional[int],
    total_steps: Optional[int],
    epoch: Optional[float],
    total_epochs: Optional[float],
    percentage: Optional[float],
) -> Optional[float]:
    """The share of a run that is done, from 0 to 1 and perhaps above; None where no end is known.

    A percentage that was given stands before steps, and steps before epochs.
    """
    if percentage is not None:
        return percentage / 100
    if step is not None and total_steps:
        return step / total_steps
    if epoch is not None and total_epochs:
        return epoch / total_epochs
    return None
