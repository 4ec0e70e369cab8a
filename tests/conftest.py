"""Options of the whole test suite."""

from __future__ import annotations

import signal
from types import FrameType

import pytest


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
