"""Reads TensorBoard's event files as a run writes them, whatever writes them: no TensorBoard is needed.

The form is in trackers/tensorboard.py. Scalars alone are read: simple values, and tensors of one number, as
`tf.summary` writes them. What was there before the run is of another one.
"""

from __future__ import annotations

import os
import struct
import time
from itertools import islice
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .adopted import EPOCHS
from .publisher import warn

INTERVAL_S = 1.0
MAX_FILES = 1000
MAX_RECORD = 64 << 10  # bytes: what is larger has a picture, and is passed over
MAX_BYTES = 4 << 20  # of one file, at one time
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
        for path in self._find():
            self._places[path] = os.path.getsize(path)

    def read(self, *, is_last: bool = False) -> List[Logged]:
        """What is new, if it is time to look."""
        now_s = time.monotonic()
        if now_s < self._due_s and not is_last:
            return []
        self._due_s = now_s + INTERVAL_S
        found: List[Logged] = []
        for path in self._find():
            place = self._places.get(path, 0)
            try:
                if place is not None and os.path.getsize(path) > place:
                    found += self._read_file(path, place)
            except (OSError, ValueError, IndexError, struct.error) as error:
                self._places[path] = None
                warn(f"{path} is read no further: {error}")
        return found

    def _find(self) -> List[str]:
        """The oldest first, by the time in their names."""
        files = (
            os.path.join(directory, name)
            for directory, _, names in os.walk(self._directory)
            for name in names
            if _IN_NAME in name
        )
        return sorted(islice(files, MAX_FILES), key=os.path.basename)

    def _read_file(self, path: str, place: int) -> List[Logged]:
        """Whole records. Raises ValueError for what is none."""
        from .trackers.tensorboard import check  # a tracker is imported when it is asked for

        if self._first is None:
            self._first = os.path.dirname(path)
        parts = os.path.relpath(os.path.dirname(path), self._first).split(os.sep)
        prefix = "".join(f"{each}/" for each in parts if each not in (".", ".."))
        found: Dict[Tuple[Optional[int], Optional[float]], Dict[str, float]] = {}
        with open(path, "rb") as file:
            size, end = os.fstat(file.fileno()).st_size, place + MAX_BYTES
            file.seek(place)
            while place < end:
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
                place += 16 + length
                file.seek(place)
        self._places[path] = place
        return [Logged(*at, metrics) for at, metrics in found.items()]


def _sort(
    found: Dict[Tuple[Optional[int], Optional[float]], Dict[str, float]],
    step: int,
    values: Dict[str, float],
    prefix: str,
) -> None:
    """Into what was logged at the same place."""
    epoch = next((values.pop(name) for name in EPOCHS if name in values), None)
    for name, value in values.items():
        at = (None, step + 1.0) if name.startswith(_BY_EPOCH) else (step, epoch)
        found.setdefault(at, {})[prefix + name] = value
    if epoch is not None and not values:
        found.setdefault((step, epoch), {})


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
