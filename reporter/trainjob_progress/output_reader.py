"""Reports what a wrapped command's output says of progress, on a thread of its own: nothing waits for it."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Literal, Mapping, Optional, Sequence

from .channels import FLOOD, Channel
from .marks import SAVE
from .publisher import warn
from .reporter import Reporter

if TYPE_CHECKING:  # what reads lines is imported while the command runs: it takes a while
    from .event_files import EventFiles, Logged
    from .lines import Fields, Search
    from .screen import Line
    from .section_lines import Mark

READ_INTERVAL_S = 0.1  # between two readings of the output; a report is due every 0.5 s
FLOOD_INTERVAL_S = 0.25  # where more comes than can be read
MAX_SHARE = 0.1  # of a core, for reading: a program that prints without a pause is not slowed down by it
MAX_APART = 0.1  # of the whole: whoever stops by so much before the end has stopped
MAX_ALIKE = 3  # lines of a flood that differ in nothing but numbers and the length of a bar
_CHANGING = re.compile(r"[\d.#=> \u2500-\u259f-]{1,1000}")


class Reader:
    """Reports what a program's output says, a little later than it says it."""

    explain: Optional[Callable[[str, Optional[Fields], Optional[Mark]], None]] = None  # told of each line

    def __init__(
        self,
        reporter: Reporter,
        search: Optional[Search],
        channels: Sequence[Channel],
        plan: Mapping[str, Optional[float]],
        place: str,
        events: Optional[EventFiles] = None,
    ) -> None:
        """`search`: in place of what is known. `plan`: total_steps and total_epochs, as far as given.
        `place`: of the file by which a reporter in the command takes ours."""
        self._events = events
        self._says_steps = False  # the output does
        self._place = place
        self._plan = plan
        self._reporter = reporter
        self._search = search
        self._channels = channels
        self._positions = {"step": _Positions(), "epoch": _Positions()}
        self._section: Optional[Mark] = None  # that is open
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Read what there is to the end."""
        self._is_over.set()
        self._thread.join()
        self._read(is_last=True)
        for output in self._outputs:
            self._report(output.screen.end())

    def find_ending(self) -> Optional[Literal["completed", "stopped"]]:
        """Of a command that has ended well. Its end says how many epochs there were that count from 0, and
        that the epoch is done that had a headline."""
        epochs, found = self._positions["epoch"], self._lines.find_end()
        headed = self._lines.find_headed()
        if found is None and headed is not None and self._reporter._epoch == headed - 1:
            is_near_end = self._is_near_end
            is_whole = headed == epochs.total and not self._positions["step"].total
            self._reporter.update(epoch=headed, total_steps=self._reporter._step if is_whole else None)
            return "completed" if is_near_end else None
        if found is None or epochs.total not in (None, 0, found[1]):
            return "completed" if self._is_near_end else None
        done, planned = found
        epochs.follow(done, planned, None)
        if done == planned:
            step = None if self._positions["step"].total else self._reporter._step
            self._reporter.update(epoch=planned, total_epochs=planned, total_steps=step)
        return "completed" if self._is_near_end else "stopped"

    def _run(self) -> None:
        from .lines import LineReader
        from .section_lines import read_mark

        self._read_mark = read_mark
        self._lines = LineReader(self._search)
        self._outputs = [_Output(channel) for channel in self._channels]
        pause_s = READ_INTERVAL_S
        while not self._is_over.wait(pause_s):
            began_s = time.thread_time()
            self._read()
            pause_s = max(READ_INTERVAL_S, (time.thread_time() - began_s) * (1 / MAX_SHARE - 1))
            if any(output.is_flooded for output in self._outputs):
                pause_s = max(pause_s, FLOOD_INTERVAL_S)

    def _read(self, *, is_last: bool = False) -> None:
        if os.path.exists(self._place):
            self._reporter._run.leave()
            with contextlib.suppress(OSError):
                os.unlink(self._place)
        self._lines.moment += 1
        for output in self._outputs:
            self._report(output.read())
        try:
            for logged in self._events.read(is_last=is_last) if self._events is not None else ():
                self._take(logged)
        except Exception as error:  # what breaks us there must not keep us from the output
            self._events = None
            warn(f"event files are read no further: {type(error).__name__}: {error}")

    def _take(self, logged: Logged) -> None:
        """The step is the output's, where that says one. An earlier one is of another metric."""
        step, now = None if self._says_steps else logged.step, self._reporter._step
        step = None if step is None or (now is not None and step <= now) else step
        self._positions["step"].follow(step, None, self._plan["total_steps"])
        self._positions["epoch"].follow(logged.epoch, None, self._plan["total_epochs"])
        self._reporter.update(logged.metrics, step=step, epoch=logged.epoch)

    def _report(self, lines: Sequence[Line]) -> None:
        for line in lines:
            mark = None
            try:
                fields = self._lines.read(line.text, depth=line.depth)
                mark = self._read_mark(line.text) if self._search is None else None
            except Exception as error:  # a line that breaks us is a line we do not understand
                fields = None
                warn(f"a line could not be read: {type(error).__name__}")
            if self.explain is not None:
                self.explain(line.text, fields, mark)
            if fields:
                self._update(fields)
            if mark or (self._section and fields and "step" in fields):
                self._mark(mark)

    def _mark(self, mark: Optional[Mark]) -> None:
        """A section begins or ends. None: a step is done, so that none is open."""
        marks, is_open = self._reporter._run.marks, self._section
        if marks is None or (mark and is_open and mark.is_begin and mark.kind == is_open.kind):
            return
        if is_open:
            marks.close(self)
        ended = is_open if mark is None or mark.is_begin else mark
        if ended and ended.took_s is not None and not is_open:
            marks.add(ended.kind, ended.took_s)
        if ended and ended.kind == SAVE:
            self._reporter.checkpointed(ended.step or (is_open.step if is_open else None))
        self._section = mark if mark and mark.is_begin else None
        if self._section:
            marks.open(self, self._section.kind)

    @property
    def _is_near_end(self) -> bool:
        """Whether no more than what lies between two positions was left to do: one that counts from 0, prints
        each hundredth, or prints before it works, has no line for its end."""
        steps, epochs = self._positions["step"], self._positions["epoch"]
        return steps.is_near_end if steps.total else epochs.is_near_end

    def _update(self, fields: Fields) -> None:
        for name, planned in self._plan.items():  # whoever starts the command knows better than a guess
            if planned is not None:
                fields.pop(name, None)
            elif name in fields and fields[name] is None:
                fields[name] = 0  # no plan: None would leave the old one
        self._says_steps = self._says_steps or "step" in fields
        if "step" in fields and fields["step"] is None:
            self._reporter._step = None
        for name, position in self._positions.items():
            position.follow(fields.get(name), fields.get(f"total_{name}s"), self._plan[f"total_{name}s"])
        self._reporter.update(**fields)


class _Positions:
    """How far apart the positions are that are printed."""

    def __init__(self) -> None:
        self.total: Optional[float] = None
        self._at: float = 0
        self._apart: float = 1

    def follow(self, at: Optional[float], printed: Optional[float], planned: Optional[float]) -> None:
        if at is not None:
            if at > self._at:
                self._apart = max(self._apart, at - self._at)
            self._at = at
        self.total = planned or (self.total if printed is None else printed)

    @property
    def is_near_end(self) -> bool:
        total = self.total or 0
        return total > 0 and total - self._at <= max(min(self._apart, total * MAX_APART), 1)


class _Output:
    """One output as a terminal would show it."""

    def __init__(self, channel: Channel) -> None:
        from .screen import Screen

        self._make_screen = Screen
        self.screen = Screen()
        self.is_flooded = False
        self._channel = channel
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(self) -> List[Line]:
        data, self.is_flooded = self._channel.take()
        if self.is_flooded:
            data = data[-FLOOD:]  # 1,600 short lines
            self.screen, data = self._make_screen(), data[data.find(b"\n") + 1 :]
        lines = self.screen.write(self._decode(data)) + self.screen.pause()
        return _leave_out_alike(lines) if self.is_flooded else lines


def _leave_out_alike(lines: Sequence[Line]) -> List[Line]:
    """Without those of which later ones say the same with other numbers: reading one takes as long as writing
    a thousand."""
    kept: List[Line] = []
    seen: Dict[str, int] = {}
    for line in reversed(lines):
        form = _CHANGING.sub("", line.text)
        seen[form] = count = seen.get(form, 0) + 1
        if count <= MAX_ALIKE:
            kept.append(line)
    return kept[::-1]
