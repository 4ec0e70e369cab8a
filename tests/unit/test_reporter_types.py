"""What mypy --strict says of a program that uses the reporter, rightly and wrongly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

RIGHT = """
from decimal import Decimal
from fractions import Fraction
from trainjob_progress import Reporter, Track, current, report, report_metrics, track

class Tensor:
    def item(self) -> float:
        return 0.5

r: Reporter = report(total_steps=10, total_epochs=2.5, bar=True, wait_s=1)
r.step(); r.step(4); r.step(n=4); r.step(loss=0.5); r.step({"loss": 0.5}); r.step(4, {"loss": 0.5}, lr=1)
r.step({"loss": Tensor()}, n=4); r.step(loss=Tensor(), name="a", much=Decimal(1), part=Fraction(1, 2))
r.update(step=3, loss=0.5); r.update({"loss": Tensor()}); r.update(metrics={"loss": 1})
r.epoch(); r.epoch(2, 3); r.epoch(epoch=2, total=3); r.epoch({"accuracy": 0.5}); r.epoch(2, accuracy=0.5)
r.finish(); r.finish("stopped", "early"); r.finish(wait_s=5)
report_metrics({"loss": 0.5}); report_metrics(loss=0.5); current().write("text")
with r.phase("evaluating") as inner:
    inner.step()
with track(["a", "b"], epochs=2, accumulate=4) as t:
    for text in t:
        text.upper()
        t.update(loss=0.5)
for number in track(range(3)):
    number.bit_length()
handle: Track[int] = track([1])
"""

WRONG = """
from trainjob_progress import report, report_metrics, track
r = report()
r.step("two")
r.step(0.5)
r.step(n=0.5)
r.step(loss=[0.5])
r.step({"loss": object()})
r.step(1, [0.5])
r.update(5)
r.update(step="three")
r.update(step=0.5)
r.update(loss=[1])
r.epoch("one")
r.epoch(total="three")
r.message(5)
r.phase()
r.finish(1)
r.finish("done")
report("many")
report(total_steps=1.5)
report_metrics([0.5])
report_metrics(loss=object())
track(5)
track([1], epochs=0.5)
with track([1]) as t:
    for number in t:
        number.upper()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """The lines of which mypy complains."""
    directory = tmp_path_factory.mktemp("types")
    (directory / "right.py").write_text(RIGHT)
    (directory / "wrong.py").write_text(WRONG)
    (directory / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {ROOT / 'reporter'}\n")
    output, errors, _ = api.run(
        [
            f"--config-file={directory / 'mypy.ini'}",
            f"--cache-dir={directory / 'cache'}",
            "--follow-imports=silent",
            str(directory / "right.py"),
            str(directory / "wrong.py"),
        ]
    )
    assert not errors
    lines: dict[str, set[int]] = {"right": set(), "wrong": set()}
    for name, line in re.findall(r"(right|wrong)\.py:(\d+): error", output):
        lines[name].add(int(line))
    return lines


def test_every_right_use_is_accepted(found: dict[str, set[int]]) -> None:
    assert found["right"] == set()


def test_every_misuse_that_types_can_find_is_found(found: dict[str, set[int]]) -> None:
    statements = WRONG.splitlines()
    missed = [
        line
        for number, line in enumerate(statements, 1)
        if number not in found["wrong"] and line and not line.startswith(("from", "r = ", "with", "    for"))
    ]
    assert missed == []
