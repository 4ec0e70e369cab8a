"""A flow that ends by a moment of `time.monotonic`, whatever the server says."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TypeVar

from .requests import Flow, Pause, Received, failure_of

T = TypeVar("T")
_LEAST_S = 2.0  # that a request may take: a timeout of 0 looks once


def within(flow: Flow[T], end: float) -> Flow[T]:
    """What the flow returns or raises; TimeoutError, with the last refusal, where it pauses beyond `end`."""
    received: Received = None
    try:
        while True:
            step, last = flow.send(received), received
            left = end - time.monotonic()
            if not isinstance(step, Pause):
                received = yield replace(step, timeout_s=max(left, _LEAST_S))
                continue
            yield Pause(max(0.0, min(step.seconds, left)))
            if step.seconds > left:
                failure = failure_of(last)
                raise TimeoutError(f"The time is over. The last answer was: {failure}") from failure
            received = None
    except StopIteration as ended:
        result: T = ended.value
        return result
