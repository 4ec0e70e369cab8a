"""Zero code: callbacks are added as a framework's trainer is imported. The frameworks here are stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPORTER = Path(__file__).parents[2] / "reporter"
AUTO = REPORTER / "trainjob_progress" / "auto"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image with something that looks like Transformers, and a sitecustomize of its own."""
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("class TrainerCallback: pass\n")
    (package / "trainer.py").write_text("DEFAULT_CALLBACKS = ['own']\n")
    (tmp_path / "sitecustomize.py").write_text("print('the image was here')\n")
    return tmp_path


def run(image: Path, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{REPORTER}:{AUTO}:{image}", **environ}
    return subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=60
    )


LOOK = "import transformers.trainer as t; print([getattr(c, '__module__', c) for c in t.DEFAULT_CALLBACKS])"


def test_a_trainer_gets_its_callback_when_it_is_imported(image: Path) -> None:
    result = run(image, LOOK, TRAINJOB_PROGRESS_AUTO="1")
    assert "['own', 'trainjob_progress.integrations.transformers']" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("value", ["", "0"])
def test_nothing_is_touched_unless_it_is_switched_on(image: Path, value: str) -> None:
    result = run(
        image,
        f"{LOOK}\nimport sys; assert 'trainjob_progress' not in sys.modules",
        TRAINJOB_PROGRESS_AUTO=value,
    )
    assert "['own']" in result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_images_own_sitecustomize_still_runs_once(image: Path, value: str) -> None:
    assert run(image, "pass", TRAINJOB_PROGRESS_AUTO=value).stdout == "the image was here\n"


def test_a_trainer_that_has_moved_things_is_one_line_and_goes_on(image: Path) -> None:
    (image / "transformers" / "trainer.py").write_text("DEFAULTS = []\n")
    result = run(image, "import transformers.trainer; print('trained')", TRAINJOB_PROGRESS_AUTO="1")
    assert "trained" in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "trainjob_progress: transformers.trainer does not report by itself: AttributeError: "
    )


def test_a_program_without_a_framework_imports_none(image: Path) -> None:
    script = "import sys; assert not any('integrations' in name for name in sys.modules)"
    assert run(image, script, TRAINJOB_PROGRESS_AUTO="1").returncode == 0


def test_sources_can_still_be_read(image: Path) -> None:
    """Frameworks look at their own source, to compile it among other things."""
    result = run(
        image,
        "import inspect, transformers.trainer as t; print(inspect.getsource(t))",
        TRAINJOB_PROGRESS_AUTO="1",
    )
    assert "DEFAULT_CALLBACKS = ['own']" in result.stdout
