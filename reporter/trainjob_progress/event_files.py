"""Reads TensorBoard's event files as a run writes them, whatever writes them: no TensorBoard is needed.

The form is in trackers/tensorboard.py. Scalars alone are read: simple values, and tensors of one number, as
`tf.summary` writes them. What was there before the run is of another one.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from .adopted import EPOCHS
from .publisher import warn
from .values import to_count

INTERVAL_S = 1.0
END_S = 5.0  # how long the end of a run may read on
MAX_FILES = 1000
MAX_RECORD = 64 << 10  # bytes: what is larger has a picture, and is passed over
MAX_BYTES = 4 << 20  # that are read of one file, at one time
_IN_NAME = "events.out.tfevents"
_BY_EPOCH = "epoch_"  # Keras counts epochs, from 0, where it has the step of other metrics
_FORMS: Dict[Union[int, bytes], str] = {1: "<f", 2: "<d"}  # by DataType: float, double


class Logged(NamedTuple):
    """What was logged at one step."""

    step: Optional[int]
    epoch: Optional[float]
    metrics: Dict[str, float]


class EventFiles:
    """Those below a directory, which need not be there yet. One thread reads."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.abspath(directory)
        self._places: Dict[str, Optional[int]] = {}  # how far each is read; None: it is damaged
        self._first: Optional[str] = None  # the directory of the first one; its metrics have no prefix
        self._due_s = 0.0
        self._is_behind = False  # there is more than was read at one time
        self._is_warned = False  # that there are too many
        for path in self._find():
            self._places[path] = _find_size(path)
        self._old = frozenset(self._places)

    def read(self, *, is_last: bool = False) -> List[Logged]:
        """What is new, if it is time to look; at last all of it, in a bounded time."""
        now_s = time.monotonic()
        if now_s < self._due_s and not is_last:
            return []
        self._due_s = now_s + INTERVAL_S
        files = self._choose()
        found = self._read_files(files)
        while is_last and self._is_behind:
            if time.monotonic() >= now_s + END_S:
                warn(f"the event files below {self._directory} were not read to their end")
                break
            found += self._read_files(files)
        return found

    def _read_files(self, files: Iterable[str]) -> List[Logged]:
        self._is_behind = False
        found: List[Logged] = []
        for path in files:
            place = self._places.get(path, 0)
            try:
                if place is not None and _find_size(path) > place:
                    found += self._read_file(path, place)
            except (OSError, ValueError, IndexError, struct.error) as error:
                self._places[path] = None
                warn(f"{path} is read no further: {error}")
        return found

    def _choose(self) -> List[str]:
        """The newest ones, the oldest of them first; those from before the run give way to others."""
        files = sorted(self._find(), key=lambda path: (path not in self._old, os.path.basename(path)))
        left, files = files[:-MAX_FILES], files[-MAX_FILES:]
        if left and left[-1] not in self._old and not self._is_warned:
            self._is_warned = True
            warn(f"of the event files below {self._directory} the newest {MAX_FILES} are read")
        return files

    def _find(self) -> Iterator[str]:
        """All but our own, which has what is reported."""
        from .trackers.tensorboard import find_suffix

        own = find_suffix()
        for directory, _, names in os.walk(self._directory):
            for name in names:
                if _IN_NAME in name and not name.endswith(own):
                    yield os.path.join(directory, name)

    def _read_file(self, path: str, place: int) -> List[Logged]:
        """Whole records. Raises ValueError for what is none."""
        from .trackers.tensorboard import check  # a tracker is imported when it is asked for

        if self._first is None:
            self._first = os.path.dirname(path)
        parts = os.path.relpath(os.path.dirname(path), self._first).split(os.sep)
        prefix = "".join(f"{each}/" for each in parts if each not in (".", ".."))
        found: Dict[Tuple[Optional[int], Optional[float]], Dict[str, float]] = {}
        with open(path, "rb") as file:
            size, left = os.fstat(file.fileno()).st_size, MAX_BYTES
            file.seek(place)
            while left > 0:
                head = file.read(12)
                if len(head) < 12:
                    break
                (length,) = struct.unpack("<Q", head[:8])
                if check(head[:8]) != head[8:]:
                    raise ValueError("it has no record at " + str(place))
                if place + 16 + length > size:
                    break  # it is being written
                if length <= MAX_RECORD:
                    step, values = _read_event(file.read(length))
                    _sort(found, step, values, prefix)
                    left -= length
                left -= 16
                place += 16 + length
                file.seek(place)
            else:
                self._is_behind = True
        self._places[path] = place
        return [Logged(*at, metrics) for at, metrics in found.items()]


def _find_size(path: str) -> int:
    """0 of one that has gone away meanwhile, or that a link leads to before it is there."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _sort(
    found: Dict[Tuple[Optional[int], Optional[float]], Dict[str, float]],
    step: int,
    values: Dict[str, float],
    prefix: str,
) -> None:
    """Into what was logged at the same place. A step below 0 is a large one here."""
    count = to_count(step)
    epoch = next((values.pop(name) for name in EPOCHS if name in values), None)
    for name, value in values.items():
        at = (count, epoch)
        if count is not None and name.startswith(_BY_EPOCH):
            at = (None, count + 1.0)
        found.setdefault(at, {})[prefix + name] = value
    if epoch is not None and not values:
        found.setdefault((count, epoch), {})


def _read_event(data: bytes) -> Tuple[int, Dict[str, float]]:
    """The step, and scalars by tag. Raises ValueError, IndexError, struct.error."""
    step = 0
    values: Dict[str, float] = {}
    for number, value in _fields(data):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            for _, one in _fields(value):
                fields = dict(_fields(one)) if isinstance(one, bytes) else {}
                tag, simple, tensor = (fields.get(each) for each in (1, 2, 8))
                scalar = _unpack("<f", simple) if simple is not None else _scalar(tensor)
                if isinstance(tag, bytes) and scalar is not None:
                    values[tag.decode("utf-8", "replace")] = scalar
    return step, values


def _scalar(tensor: Union[int, bytes, None]) -> Optional[float]:
    if not isinstance(tensor, bytes):
        return None
    fields = dict(_fields(tensor))
    form = _FORMS.get(fields.get(1, 0))
    content = next((fields[each] for each in (4, 5, 6) if each in fields), None)
    return None if form is None else _unpack(form, content)


def _unpack(form: str, content: Union[int, bytes, None]) -> Optional[float]:
    if not isinstance(content, bytes) or len(content) != struct.calcsize(form):
        return None
    (found,) = struct.unpack(form, content)
    return float(found)


def _fields(data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    """Of a protobuf message: numbers and values, fixed ones as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise ValueError("a record has no protobuf message")
            size, at = _varint(data, at)
        if at + size > len(data):
            raise ValueError("a record is cut")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a record has no protobuf message")
