"""Options of the whole test suite."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

import pytest

with contextlib.suppress(ImportError):  # where the frameworks are tested there is no hypothesis
    import hypothesis

    # The same examples each time, so that what one run says holds for the next; HYPOTHESIS_PROFILE=search
    # looks for new ones. No deadline: machines are shared, their times say nothing of ours.
    hypothesis.settings.register_profile("repeat", derandomize=True, deadline=None)
    hypothesis.settings.register_profile("search", deadline=None)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=("local", "real"),
        default="local",
        help="what tests/e2e runs against: the local stand-in, or kube-apiserver from KUBEBUILDER_ASSETS",
    )


def pytest_configure() -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        # So that a terminated run still stops what it has started; a SystemExit would only fail one test.
        pytest.exit("terminated", returncode=143)

    signal.signal(signal.SIGTERM, end)
