"""When a job is what was waited for."""

from __future__ import annotations

from typing import Callable, FrozenSet, Iterable, List, Optional, Union

from .errors import JobEndedError
from .jobs import Job
from .words import CONDITION_TYPES, PHASES

Until = Union[str, Iterable[str], Callable[[Job], bool]]
_WORDS = frozenset({"Created", *PHASES, *CONDITION_TYPES})


class Waiting:
    """Asked of each document that comes, in order."""

    def __init__(self, status: Until, callbacks: Optional[List[Callable[[Job], None]]] = None) -> None:
        """Raises ValueError for a word that no job will ever show."""
        self._callbacks = callbacks or []
        self._words: FrozenSet[str] = frozenset()
        self._holds: Callable[[Job], bool] = self._has_word
        if callable(status):
            self._holds = status
        else:
            self._words = frozenset([status] if isinstance(status, str) else status)
            if unknown := sorted(self._words - _WORDS):
                raise ValueError(f"No status is {unknown[0]!r}; there are {', '.join(sorted(_WORDS))}.")
        self._has_ended = False

    def is_over(self, job: Job) -> bool:
        """Whether it is reached. Raises JobEndedError when it never will be."""
        for callback in self._callbacks:
            callback(job)
        if self._holds(job):
            return True
        # Once more after the end: the last report may come a moment later than the end itself.
        if job.has_ended and self._has_ended:
            raise JobEndedError(_how(job), job)
        self._has_ended = job.has_ended
        return False

    def _has_word(self, job: Job) -> bool:
        found = {"Created", job.phase, *(each for each in self._words if job.is_true(each))}
        found |= {"Complete"} if job.phase == "Succeeded" else set()
        return bool(self._words & found)


def _how(job: Job) -> str:
    failure = job.status.failure
    why = f": {failure.message}" if failure is not None and failure.message and job.phase == "Failed" else "."
    return f"The job {job.namespace}/{job.name} has ended: {job.phase}{why}"
