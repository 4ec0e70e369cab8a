"""Orbax: `CheckpointManager` of this module in place of its own.

Saves and restores are marked as far as training waits for them. The checkpoint of an asynchronous save is
complete when Orbax says that it is.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from concurrent.futures import Future
from typing import Any

import orbax.checkpoint as ocp

from trainjob_progress import current
from trainjob_progress.marks import RESTORE, SAVE
from trainjob_progress.sections import Section

from . import quietly


class CheckpointManager(ocp.CheckpointManager):
    """Orbax's own, whose saves and restores are sections of the run that is open."""

    def __init__(
        self, directory: Any, checkpointers: Any = None, options: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        self._saving: deque[Future[None]] = deque()  # of checkpoints that are not complete yet
        own = options or ocp.CheckpointManagerOptions()
        self._is_async = checkpointers is None and own.enable_async_checkpointing
        if self._is_async:
            asynchronous = own.async_options or ocp.options.AsyncOptions()
            callback = asynchronous.post_finalization_callback

            def complete() -> None:
                self._complete()
                if callback is not None:
                    callback()

            asynchronous = dataclasses.replace(asynchronous, post_finalization_callback=complete)
            options = dataclasses.replace(own, async_options=asynchronous)
        super().__init__(directory, checkpointers, options, *args, **kwargs)

    def save(self, step: int, *args: Any, **kwargs: Any) -> bool:
        saving: Future[None] = Future()
        with Section(current(), SAVE, step) as section:
            section.until(saving)
            self._saving.append(saving)  # the one before it may be completed by this call
            is_saved = False
            try:
                is_saved = super().save(step, *args, **kwargs)
            finally:
                if not is_saved:
                    self._saving.remove(saving)
        if is_saved and not self._is_async:
            self._complete()
        return bool(is_saved)

    def restore(self, *args: Any, **kwargs: Any) -> Any:
        with Section(current(), RESTORE):
            return super().restore(*args, **kwargs)

    @quietly
    def _complete(self) -> None:
        if self._saving:
            self._saving.popleft().set_result(None)
