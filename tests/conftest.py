"""Options of the whole test suite."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.canary import fail_on_leaks

with contextlib.suppress(ImportError):  # where the frameworks are tested there is no hypothesis
    import hypothesis

    # The same examples each time, so that what one run says holds for the next, and few: they find what they
    # find at once. HYPOTHESIS_PROFILE=search looks for new ones. No deadline, and none for making examples:
    # machines are shared, their times say nothing of ours.
    patient: dict[str, Any] = {
        "deadline": None,
        "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    }
    hypothesis.settings.register_profile("repeat", derandomize=True, max_examples=50, **patient)
    hypothesis.settings.register_profile("search", **patient)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=("local", "real"),
        default="local",
        help="what tests/e2e runs against: the local stand-in, or kube-apiserver from KUBEBUILDER_ASSETS",
    )
    parser.addoption(
        "--store",
        choices=("memory", "nats"),
        default="memory",
        help="where servers of tests/e2e keep the log of the jobs: in memory, or in three servers of NATS",
    )
    parser.addoption(
        "--crds",
        type=Path,
        help="a directory with CRDs, such as an operator's, in place of those of tests/e2e/crds.yaml",
    )


@pytest.hookimpl(optionalhook=True)  # some tests start pytest without the plugin
def pytest_xdist_auto_num_workers() -> int:
    """Three processes a core: most of what a test of a cluster takes, it waits for others."""
    return 3 * (os.cpu_count() or 1)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the tests once, a share on each core, before each of many processes would compile them all."""
    config, cores = session.config, os.cpu_count() or 1
    is_one_of_many = hasattr(config, "workerinput")
    if is_one_of_many or not config.getoption("numprocesses", None) or sys.dont_write_bytecode:
        return
    named = [config.invocation_params.dir / arg.partition("::")[0] for arg in config.args]
    tests = {each for path in named for each in (path.rglob("test_*.py") if path.is_dir() else [path])}
    tests = {test for test in tests if "frameworks" not in test.parts}  # what they import is large
    stale = sorted(test for test in tests if not _is_compiled(test))
    children = []
    for share in range(cores) if stale else ():
        child = os.fork()
        if child:
            children.append(child)
            continue
        for test in stale[share::cores]:
            with contextlib.suppress(BaseException):  # it is told where the test is collected
                importlib.import_module(".".join(test.relative_to(config.rootpath).with_suffix("").parts))
        os._exit(0)
    for child in children:
        os.waitpid(child, 0)


def _is_compiled(test: Path) -> bool:
    kept_as = f"{test.stem}.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    kept = test.parent / "__pycache__" / kept_as
    return kept.exists() and kept.stat().st_mtime >= test.stat().st_mtime


def pytest_configure() -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        # So that a terminated run still stops what it has started; a SystemExit would only fail one test.
        pytest.exit("terminated", returncode=143)

    signal.signal(signal.SIGTERM, end)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_on_leaks(report)
    return report


@pytest.fixture(autouse=True)
def _last_documents_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a reporter in this process, however slow the machine; tests of that limit set their own."""
    monkeypatch.setattr("trainjob_progress.termination.FLUSH_TIMEOUT_S", 60.0)
