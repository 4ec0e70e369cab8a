"""How a tracked loop was left when something else than its own `for` asks for its items, in every Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pythons import VERSIONS, find_python

ROOT = Path(__file__).parents[2]

DEFINITIONS = """
from itertools import islice

def batches():
    for item in track(range(10)):
        yield item

def batches_from():
    yield from track(range(10))

def tracked_range(number): return track(range(number))

def between(items):
    for item in items:
        yield item

def fail_at_3(item):
    if item == 3:
        raise ValueError
    return item

class Flaky:  # six items; asking for the third raises once, and the next question goes on
    def __len__(self): return 6
    def __iter__(self): return FlakyItems()

class FlakyItems:
    at = 0
    def __iter__(self): return self
    def __next__(self):
        self.at += 1
        if self.at == 3: raise ValueError("bad sample")
        if self.at > 6: raise StopIteration
        return self.at

def skip_bad(ask, seen):
    for _ in range(20):
        try: seen.append(ask())
        except StopIteration: break
        except ValueError: seen.append("bad")
"""

# What the program does, and what its last document shows: ending, step, total, epoch.
PROGRAMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    # What an exception of `map`'s function has left, nobody has stopped on purpose.
    "for y in map(fail_at_3, track(range(10))): pass": ("raises", (None, 3, 10, None)),
    "list(map(fail_at_3, track(range(10))))": ("raises", (None, 3, 10, None)),
    "sum(filter(fail_at_3, track(range(10))))": ("raises", (None, 3, 10, None)),
    "for y in islice(track(range(10)), 3): pass": ("", ("stopped", 2, 10, None)),
    "list(islice(track(range(10)), 3))": ("", ("stopped", 2, 10, None)),
    # A generator that tracks: its consumer's `for` is no loop around it.
    "for item in batches(): pass": ("", ("finished", 10, 10, 1)),
    "for item in batches():\n    if item == 3: break": ("", ("stopped", 4, 10, None)),
    "for item in between(between(batches())):\n    if item == 3: break": ("", ("stopped", 4, 10, None)),
    "for item in batches_from():\n    if item == 3: break": ("", ("stopped", 4, 10, None)),
    "for item in batches(): fail_at_3(item)": ("raises", (None, 3, 10, None)),
    "for item in batches_from(): fail_at_3(item)": ("raises", (None, 3, 10, None)),
    "list(map(fail_at_3, batches()))": ("raises", (None, 3, 10, None)),
    "for epoch in range(3):\n    for item in batches(): pass": ("", ("finished", 30, 30, 3)),
    """
async def items():
    for item in track(range(10)):
        yield item
async def train():
    async for item in items():
        if item == 4: break
import asyncio; asyncio.run(train())
""": ("", ("stopped", 4, 10, None)),
    # A generator gets what the program sends to it and throws into it.
    """
def answers():
    got = []
    for item in range(3):
        try: got.append((yield item))
        except ValueError: yield "caught"
    return got
def delegate(items): seen.append((yield from items))
def talk(items):
    talker = delegate(items)
    return [next(talker), talker.send(5), talker.throw(ValueError()), *talker, seen.pop()]
seen = []
assert not hasattr(iter(track([])), "send")
assert talk(track(answers())) == talk(answers())
""": ("", ("finished", 4, None, 1)),
    # A retry inside of `except`. Seen: in Python 3.12 a `try` above the loop made a loop around it.
    """
def attempt(items, fails_at=None):
    try: open("/nonexistent")
    except OSError as error: pass  # Python 3.12 puts this at the function's end, from which it jumps back
    batches = enumerate(track(range(items)))
    for item, _ in batches:
        if item == fails_at: raise RuntimeError
def main():
    try: attempt(200, 60)
    except RuntimeError as error:
        kept = error
        attempt(100)
main()
""": ("", ("finished", 100, 100, 1)),
    # Begun anew by hand, in a loop that is not tracked.
    """
items = track(range(10))
batches = iter(items)
for step in range(25):
    try:
        batch = next(batches)
    except StopIteration:
        batches = iter(items)
        batch = next(batches)
""": ("", (None, 24, None, 2)),
    """
items = track(range(4), initial_step=10)
for epoch in range(2):
    for item in items: pass
""": ("", ("finished", 18, 18, 2)),
    # Loops inside of `report`, of which nobody says how often they come.
    """
with report() as r:
    for epoch in range(3):
        for item in track(range(4)): pass
        r.flush(60)
        shown = sink.last.step, sink.last.total_steps, sink.last.epoch, sink.last.percentage
        assert shown == (4 * epoch + 4, None, epoch + 1, None), shown
""": ("", ("finished", 12, 12, 3)),
    """
for fold in range(2):
    with report(name=f"fold {fold}") as r:
        for item in track(range(4)):
            r.flush(60)
            assert (sink.last.step, sink.last.total_steps) == (item, 4)
""": ("", ("finished", 4, 4, 1)),
    """
with report() as r:
    for epoch in range(3):
        for item in track(range(4)): pass
    for epoch in range(2):
        for item in track(range(5)): pass
""": ("", ("finished", 22, 22, 2)),  # epochs of the loop that runs
    """
with report(total_steps=12):
    for epoch in range(3):
        for item in track(range(4)): pass
""": ("", ("finished", 12, 12, 3)),
    """
with report(total_steps=12) as r:
    for item in track(range(4)): pass  # before the training
    for item in range(12): r.step()
""": ("", ("finished", 12, 12, None)),
    # Epochs whose steps are counted at several places in the code.
    """
for epoch in track(range(5)):
    if epoch < 2:
        for item in track(range(3)): pass
    else:
        for item in track(range(10)): pass
""": ("", ("finished", 36, 36, 5)),
    """
for epoch in track(range(4)):
    if epoch == 0:
        for item in track(range(3), desc="baseline"): pass
    for item in track(range(5), desc="training"): pass
""": ("", ("finished", 20, 20, 4)),
    """
for epoch in track(range(11)):
    if epoch % 5 == 0:
        for item in track(range(3), desc="evaluation"): pass
    for item in track(range(5), desc="training"): pass
""": ("", ("finished", 55, 55, 11)),
    """
def run(items, name):
    for item in track(items, desc=name): pass
for epoch in track(range(3)):
    run(range(10), f"training {epoch}")
    run(range(4), f"validation {epoch}")
""": ("", ("finished", 30, 30, 3)),
    # A loop that goes on after its source has raised has all that comes then.
    """
seen = []
skip_bad(iter(track(Flaky())).__next__, seen)
assert seen == [1, 2, "bad", 4, 5, 6], seen
""": ("", ("finished", 5, 5, 1)),
    """
seen = []
skip_bad(track(Flaky()).__next__, seen)
assert seen == [1, 2, "bad", 4, 5, 6], seen
""": ("", ("finished", 5, 5, 1)),
    """
seen = []
with track(Flaky(), epochs=2) as items: skip_bad(iter(items).__next__, seen)
assert seen == [1, 2, "bad", 4, 5, 6] * 2, seen
""": ("", ("finished", 10, 10, 2)),
    """
seen = []
for epoch in track(range(2)): skip_bad(iter(track(Flaky())).__next__, seen)
assert seen == [1, 2, "bad", 4, 5, 6] * 2, seen
""": ("", ("finished", 10, 10, 2)),
    """
seen, items = [], iter(track(Flaky()))
for _ in range(2):
    try:
        for item in items: seen.append(item)
    except ValueError: seen.append("bad")
assert seen == [1, 2, "bad", 4, 5, 6], seen
""": ("", ("finished", 5, 5, 1)),
    """
seen, items = [], iter(track((item for item in map(fail_at_3, range(1, 7))), total=6))
skip_bad(items.__next__, seen)
assert seen == [1, 2, "bad"], seen  # its source has ended with the exception
""": ("", ("stopped", 2, 6, 1)),
    """
seen, items = [], iter(track(map(fail_at_3, range(1, 7)), total=6))
skip_bad(items.__next__, seen)
assert seen == [1, 2, "bad", 4, 5, 6], seen
""": ("", ("finished", 5, 5, 1)),
    # Left in the middle of an epoch: that one is not done, and the plan stays as it was.
    """
for epoch in track(range(10)):
    for item in track(range(20)):
        if (epoch, item) == (2, 9): break
    if epoch == 2: break
""": ("", ("stopped", 50, 200, 2)),
    """
def train():
    for epoch in track(range(10)):
        for item in track(range(20)):
            if (epoch, item) == (2, 9): return
train()
""": ("", ("stopped", 50, 200, 2)),
    """
def train():
    for epoch in track(range(3)):
        for item in track(range(10)): yield epoch, item
for at in train():
    if at == (1, 4): break
""": ("", ("stopped", 15, 30, 1)),
    """
def stream():
    yield from range(10)
for epoch in track(range(4)):
    for item in track(stream()):
        if (epoch, item) == (1, 4): break
    for item in track(range(3), desc="validation"): pass
    if epoch == 1: break
""": ("", ("stopped", 15, None, 1)),
    """
def train():
    for epoch in range(5):
        for item in track(range(10)):
            if (epoch, item) == (2, 4): return
train()
""": ("", ("stopped", 25, None, 2)),
    """
with report(total_epochs=5):
    for epoch in range(5):
        for item in track(range(10)):
            if (epoch, item) == (2, 4): break
        if epoch == 2: break
""": ("", ("stopped", 25, 50, 2)),
    """
for epoch in track(range(10)):
    for item in track(range(20)): pass
    if epoch == 3: break
""": ("", ("stopped", 80, 200, 4)),
    # Left at the top of an epoch, before its inner loop: that one is not done either.
    """
for epoch in track(range(10)):
    if epoch == 3: break
    for item in track(range(20)): pass
""": ("", ("stopped", 60, 200, 3)),
    """
def train():
    for epoch in track(range(10)):
        if epoch == 3: return
        for item in track(range(20)): yield item
for item in train(): pass
""": ("", ("stopped", 60, 200, 3)),
    """
for epoch in track(range(10)):
    if epoch == 3: break
    for item in track(range(20), desc="training"): pass
    for item in track(range(3), desc="validation"): pass
""": ("", ("stopped", 60, 200, 3)),
    """
steps = 0
for epoch in track(range(10)):
    if steps == 25: break
    for item in track(range(10)):
        steps += 1
        if steps == 25: break
""": ("", ("stopped", 25, 100, 2)),
    """
def train():
    steps = 0
    for stage in track(range(3)):
        for epoch in track(range(4)):
            if steps == 33: return
            for item in track(range(5)):
                steps += 1
                if steps == 33: break
train()
""": ("", ("stopped", 33, 60, 6)),
    """
for epoch in track(range(6)):
    if epoch == 4: continue
    for item in track(range(10)): pass
""": ("", ("finished", 50, 50, 6)),
    """
for step in track(range(50)):
    if step == 10: break
    if step % 5 == 4:
        for item in track(range(3)): pass
""": ("", ("stopped", 11, 50, None)),
    **{
        f"""
def train():
    for stage in track(range(3)):
        for epoch in track(range(4)):
            if (stage, epoch) == ({stage}, {epoch}): return
            for item in track(range(5)): pass
train()
""": ("", ("stopped", 20 * stage + 5 * epoch, 60, 4 * stage + epoch))
        for stage, epoch in ((1, 0), (1, 1), (2, 2))
    },
    """
for stage in track(range(3)):
    for epoch in track(range(4)):
        current().flush(60)
        shown = sink.last.step, sink.last.total_steps, sink.last.epoch, sink.last.total_epochs
        done = 4 * stage + epoch - 3 * (stage == 2)
        all = 9 if stage == 2 else 12
        assert done == 0 or shown == (5 * done, 5 * all, done, all), (stage, epoch, shown)
        if (stage, epoch) == (1, 1): break
        for item in track(range(5)): pass
""": ("", ("finished", 45, 45, 9)),
    # Where that is usual, such an epoch is done, and those to come are as long.
    """
for epoch in track(range(4)):
    for item in track(range(100)):
        if item == 19: break
    if epoch == 1: break
""": ("", ("stopped", 40, 80, 2)),
    """
steps = 0
for epoch in track(range(4)):
    for item in track(range(100)):
        steps += 1
        if item == 19 or steps == 50: break
    if steps == 50: break
""": ("", ("stopped", 50, 80, 2)),
    """
for episode in track(range(9)):
    for item in track(range(100)):
        if item == (4, 9, 2, 14)[episode % 4]: break
    if episode == 3: break
""": ("", ("stopped", 33, 74, 4)),
    """
for epoch in track(range(4)):
    for item in track(range((2, 1, 5, 6)[epoch])):
        if (epoch, item) in ((0, 0), (2, 2)): break
    if epoch == 2: break
""": ("", ("stopped", 5, 6, 2)),
    """
for epoch in track(range(3)):
    for item in track(range(10)):
        if (epoch, item) == (1, 4): break  # the next epoch comes
""": ("", ("finished", 25, 25, 3)),
    # Folds that stop early have as many epochs as they had.
    """
for fold in track(range(3)):
    for epoch in track(range(4)):
        for item in track(range(5)): pass
        if epoch == 1: break
    if fold == 1:
        current().flush(60)
        shown = sink.last.step, sink.last.total_steps, sink.last.epoch, sink.last.total_epochs
        assert shown == (20, 30, 4, 6), shown
""": ("", ("finished", 30, 30, 6)),
    """
for fold in track(range(3)):
    for epoch in track(range(4)):
        for item in track(range(5)):
            fail_at_3(item if (fold, epoch) == (1, 2) else 0)
""": ("raises", (None, 33, 60, 6)),
    """
with track(range(3)) as epochs:
    for epoch in epochs:
        for item in track(range(10)):
            if (epoch, item) == (1, 4): break
        if epoch == 1: break
    for epoch in epochs:
        for item in track(range(10)): pass
""": ("", ("finished", 45, 45, 4)),
    # An epoch that was cut short is not how a run has ended that fails later.
    """
for epoch in track(range(3)):
    for item in track(range(5)):
        if epoch == 0 and item == 1: break
        if epoch == 1: fail_at_3(item)
""": ("raises", (None, 5, 12, 1)),
    # What was done before is in steps, and in epochs where the range begins with them.
    """
for epoch in track(range(6, 10), initial_step=60):
    for item in track(range(10)): pass
""": ("", ("finished", 100, 100, 10)),
    """
for epoch in track(list(range(6, 10)), initial_step=60):
    for item in track(range(10)): pass
""": ("", ("finished", 100, 100, 4)),
    """
with report(total_steps=100, initial_step=60, total_epochs=10) as r:
    for epoch in range(6, 10):
        r.step(10)
        r.epoch()
""": ("", ("finished", 100, 100, 10)),
    # The last attempt of a sweep fails between two epochs, and the program goes on to its end.
    """
def train(trial):
    for epoch in track(range(5), desc=f"trial {trial}"):
        for item in track(range(4)): pass
        if trial == 1 and epoch == 2: raise ValueError
for trial in range(2):
    try: train(trial)
    except ValueError: pass
""": ("", (None, 32, None, 8)),
    # A loop that is begun when its first item is asked for, by what is around it or by a call of `next`.
    """
for epoch in range(3):
    for item in itertools.chain(track(range(5)), ()): pass
    for item in track(range(2)): pass
""": ("", ("finished", 15, 15, 3)),
    """
def cycle():
    for item in track(range(20)): yield item
items, steps = cycle(), 0
while steps < 9: steps += next(items) >= 0
current().flush(60)
assert (sink.last.step, sink.last.total_steps) == (8, 20)
""": ("", (None, 8, 20, None)),
    # A `while` is one loop, though its condition stands twice.
    """
epoch = -1
while epoch + 1 < 4:
    epoch += 1
    if epoch == 0: continue
    for item in track(range(5)): pass
    with current().phase("evaluating"):
        for item in track(range(2)): pass
""": ("", ("finished", 15, 15, 3)),
    # A handle is no run of its own either, in a loop that is not tracked.
    """
for epoch in range(3):
    with track(range(5)) as items:
        for item in items: pass
    current().flush(60)
    assert sink.last.state == "running"
    for item in track(range(2)): pass
""": ("", ("finished", 15, 15, 3)),
    # In a block that has planned its epochs or steps, one loop of each epoch counts.
    **{
        f"""
with report({plan}) as r:
    for epoch in range(4):
        for item in track(range(7)):
            current().flush(60)
            assert (sink.last.step, sink.last.total_steps) == (7 * epoch + item, 28)
        for item in track(range(2)): pass
        for item in track(range(3), desc="test"): pass
        {verb}
""": ("", ("finished", 28, 28, epoch))
        for plan, verb, epoch in (
            ("total_epochs=4", "r.epoch()", 4), ("total_epochs=4", "", 4), ("total_steps=28", "", 4),
            ("total_steps=28, total_epochs=4", "r.epoch()", 4),
        )
    },
    """
with report(total_epochs=4) as r:
    for epoch in range(2):
        for item in track(range(5)): pass
        r.epoch()
    for epoch in range(2):
        for item in track(range(5)): pass
        current().flush(60)
        assert (sink.last.step, sink.last.total_steps) == (15 + 5 * epoch, 20)
        r.epoch()
""": ("", ("finished", 20, 20, 4)),
    """
with report(total_epochs=2) as r:
    for epoch in range(2):
        for item in track(range(5)):
            if (epoch, item) == (1, 2): break
        r.epoch()
""": ("", ("finished", 8, 8, 2)),
    # In a block, what runs before the rounds that it has planned is none of them, nor what follows them.
    **{
        f"""
with report({plan}):
    data = {load}
    for epoch in {rounds}(4):
        for item in track(data): pass
        for item in track(range(3), desc="validation"): pass
    for item in track(range(3), desc="test"): pass
    for part in range(2):
        for item in track(range(3), desc="parts"): pass
""": ("", ("finished", 28, 28, 4))
        for plan in ("total_epochs=4", "total_steps=28")
        for load in ("[item for item in track(range(7))]", "list(track(range(7)))", "range(7)")
        for rounds in ("range", "tracked_range")
    },
    """
with report(total_epochs=4):
    for epoch in list(track(range(4))):
        for item in track(range(5)): pass
""": ("", ("finished", 20, 20, 4)),
    """
with report(total_steps=35):
    for item in track(range(7), desc="warm up"): pass
    for epoch in range(4):
        for item in track(range(7)): pass
""": ("", ("finished", 35, 35, 4)),
    # A block without a plan has that of what runs in it, such as a framework's of four steps.
    """
with report(name="trial"):
    with report(total_steps=4, total_epochs=1) as inner:
        inner.step(4)
        inner.update(epoch=0.5)
""": ("", ("finished", 4, 4, 0.5)),
    """
with report(name="trial"):
    with report(total_steps=4, total_epochs=1) as inner:
        inner.step(3)
        inner.update(epoch=0.4)
""": ("", ("stopped", 3, None, 0.4)),
    # What runs in a marked section is no training.
    """
for epoch in track(range(3)):
    with evaluating():
        for item in track(range(2)): pass
    for item in track(range(5)): pass
    current().flush(60)
    assert sink.last.step == 5 * epoch + 5
""": ("", ("finished", 15, 15, 3)),
    # Epochs that are left early are so in the next fold too, and evaluations stay evaluations.
    """
for fold in track(range(3)):
    for epoch in track(range(4)):
        for item in track(range(100)):
            if fold: current().flush(60)
            assert not fold or sink.last.total_steps == 60, sink.last
            if item == 4: break
""": ("", ("finished", 60, 60, 12)),
    """
for epoch in track(range(3)):
    for item in track(range(7)):
        current().flush(60)
        assert epoch + item == 0 or (sink.last.step, sink.last.total_steps) == (7 * epoch + item, 21)
        if (7 * epoch + item) % 5 == 4:
            for _ in track(range(4), desc="evaluation"): pass
""": ("", ("finished", 21, 21, 3)),
    # Epochs that are skipped before the first that trains: one that is longer than the loop around it.
    """
for epoch in track(range(4)):
    if epoch < 2: continue
    for item in track(range(10)):
        current().flush(60)
        assert (sink.last.step, sink.last.total_steps) == (10 * epoch - 20 + item, 20)
""": ("", ("finished", 20, 20, 4)),
    """
for epoch in track(range(4)):
    if epoch < 2: continue
    for item in track(range(10)):
        if item == 4: break
    if item == 4: break
""": ("", ("stopped", 5, 20, 2)),
    # Iterations before it that took their time were steps: it is an evaluation, however long.
    """
for step in track(range(8)):
    if step == 3:
        pass_time()
        for item in track(range(20)):
            current().flush(60)
            assert (sink.last.step, sink.last.total_steps) == (3, 8)
""": ("", ("finished", 8, 8, 1)),
    """
for step in track(range(8)):
    if step == 7:
        pass_time()
        for item in track(range(20)): pass
""": ("", ("finished", 8, 8, 1)),
    # By hand, and left: the variable keeps what it went over until the next round, or for ever.
    """
for epoch in track(range(3)):
    items = iter(track(range(9)))
    for _ in range(4): next(items)
""": ("", ("finished", 12, 12, 3)),
    """
for epoch in track(range(3)):
    items = iter(track(range(9)))
    while True:
        try: item = next(items)
        except StopIteration: break
        if item == 3: break
""": ("", ("finished", 12, 12, 3)),
    # By hand, in the condition of a `while`, which stands twice.
    """
epochs = iter(track(range(3)))
while next(epochs, None) is not None:
    for item in track(range(4)): pass
""": ("", ("finished", 12, 12, 3)),
    """
items = iter(track(range(12)))
while (item := next(items, None)) is not None:
    if item % 5 == 4:
        for each in track(range(3)): pass
""": ("", ("finished", 12, 12, 1)),
}  # fmt: skip

SCRIPT = f"""
import itertools, json, sys
from trainjob_progress import current, evaluating, report, tracked, track as track_
from trainjob_progress.loops import abandon_all

class Sink:
    interval_s = 3600
    def write(self, snapshot): self.last = snapshot
    def close(self): pass

seen = []
for program in json.load(sys.stdin):
    sink = Sink()
    sys.modules["trainjob_progress.settings"].find_sinks = lambda **_: [sink]
    scope = {{"report": report, "current": current, "sink": sink, "track": track_, "itertools": itertools}}
    scope["evaluating"] = evaluating
    scope["pass_time"] = lambda: setattr(tracked, "SKIPPING_S", -1)
    tracked.SKIPPING_S = 60
    raised = ""
    try:
        exec(compile({DEFINITIONS!r} + program, "program.py", "exec"), scope)
    except ValueError:
        raised = "raises"
    except AssertionError as error:
        raised = str(error)
    current()._run.exit()
    last = sink.last
    seen.append((raised, (last.ending, last.step, last.total_steps, last.epoch)))
    abandon_all()
print(json.dumps(seen))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_document_says_how_far_a_loop_came_and_whether_it_was_stopped(version: str) -> None:
    done = subprocess.run(
        [find_python(version), "-S", "-c", SCRIPT],
        env={"PYTHONPATH": str(ROOT / "reporter")},
        input=json.dumps(list(PROGRAMS)),
        capture_output=True,
        text=True,
        check=True,
    )
    seen = [(raised, tuple(shown)) for raised, shown in json.loads(done.stdout)]
    assert dict(zip(PROGRAMS, seen, strict=True)) == PROGRAMS
