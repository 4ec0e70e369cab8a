"""`python -m benchmarks.hostile_bodies`: the costliest bodies of 64 KiB that anyone may send, in CPU time.

Every shape of JSON, and of what is no JSON, stands in the place of every field that is read, of a push and of
a file. Each is read by what reads pushes and by what reads files, ports and logs. The worst are printed. Of
logs, which are read in steps, the longest step counts.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from visibility_api.errors.status import Invalid
from visibility_api.pushing.payload import read_payload
from visibility_api.reports.log_tail import TailReader
from visibility_api.reports.report import parse_report

SIZE = 64 * 1024
MOST_S = 0.001  # of CPU time, for each body
MOST_STEP_S = 0.005  # the same, for each step in which a log is read
ROUNDS = 7
TIME = b'"2026-01-23T10:30:45Z"'
HOLE = b"@@"

# What stands around the hostile value: the place of a field.
STATUS = b'{"trainerStatus":{"lastUpdatedTime":' + TIME + b",%s}}"
DOCUMENT = b'{"timestamp":' + TIME + b',"schemaVersion":1,%s}'
PLACES: Mapping[str, bytes] = {
    "the body": HOLE,
    "an unknown field": b'{"x":@@}',
    "after the value": b"{}@@",
    "trainerStatus": b'{"trainerStatus":@@}',
    **{
        name: STATUS % (b'"%s":@@' % name.encode())
        for name in ("progressPercentage", "estimatedRemainingSeconds", "metrics", "x", "PROGRESSPERCENTAGE")
    },
    "lastUpdatedTime": b'{"trainerStatus":{"lastUpdatedTime":@@}}',
    "metrics[]": STATUS % b'"metrics":[@@]',
    "metrics[].name": STATUS % b'"metrics":[{"value":"1","name":@@}]',
    "metrics[].value": STATUS % b'"metrics":[{"name":"loss","value":@@}]',
    "metrics[].x": STATUS % b'"metrics":[{"name":"loss","x":@@}]',
    **{
        f"document: {name}": DOCUMENT % (b'"%s":@@' % name.encode())
        for name in (
            "state", "ending", "step", "totalSteps", "epoch", "totalEpochs", "progressPercentage",
            "estimatedRemainingSeconds", "metrics", "message", "startTime", "rank", "attempt", "recent",
            "ranks", "schemaVersion", "x",
        )
    },
    "document: timestamp": b'{"timestamp":@@}',
    "document: metrics[]": DOCUMENT % b'"metrics":{"loss":@@}',
    "document: recent.metrics": DOCUMENT % b'"recent":{"secondsBefore":[1],"metrics":{"loss":@@}}',
    "document: recent.secondsBefore": DOCUMENT % b'"recent":{"secondsBefore":@@}',
    "document: ranks.name": DOCUMENT % b'"ranks":{"rank":[1],"name":@@}',
    "Open Data Hub: currentStep": b'{"currentStep":@@}',
    "Open Data Hub: trainMetrics": b'{"currentStep":1,"trainMetrics":@@}',
    "Open Data Hub: trainMetrics[]": b'{"currentStep":1,"trainMetrics":{"loss":@@}}',
    "Open Data Hub: currentPhase": b'{"currentStep":1,"currentPhase":@@}',
}  # fmt: skip

# Texts that are repeated inside quotes, in a list, and as members of an object.
TEXTS: Mapping[str, bytes] = {
    "ASCII": b"a",
    "quotes": b'\\"',
    "backslashes": b"\\\\",
    "escaped letters": b"\\u0061",
    "escaped names": b"\\u006eame",
    "pairs of surrogates": b"\\ud83d\\ude00",
    "low halves": b"\\udc00",
    "high halves": b"\\ud800",
    "halves in both orders": b"\\udc00\\ud800",
    "half escapes": b"\\u",
    "half escapes of surrogates": b"\\ud8",
    "broken escapes": b"\\x",
    "U+200B": b"\xe2\x80\x8b",
    "four bytes each": b"\xf0\x9f\x98\x80",
    "surrogates in UTF-8": b"\xed\xa0\x80",
    "bytes of no UTF-8": b"\xff",
    "letter, byte of no UTF-8": b"a\xff",
    "unfinished UTF-8": b"\xf0\x9f",
    "NUL": b"\0",
    "ESC": b"\x1b",
    "newlines": b"\n",
    "brackets": b"[",
    "a field's name": b'metrics":',
    "names of fields": b'"name" ',
    "braces and quotes": b'{"',
}
VALUES: Mapping[str, bytes] = {
    "0": b"0",
    "9007199254740993": b"9007199254740993",
    "1e308": b"1e308",
    "5e-324": b"5e-324",
    "1e999": b"1e999",
    "0e9999": b"0e9999",
    "1E+22": b"1E+22",
    "9e22": b"9e22",
    "1e23": b"1e23",
    "20 digits": b"12345678901234567890",
    "17 digits after a point": b"0.12345678901234567",
    "19 digits and exponent": b"1234567890123456789e-30",
    "halfway to the next double": b"9007199254740993.0",
    "halfway, 30 digits": b"9007199254740992999999999999e-12",
    "2.2250738585072011e-308": b"2.2250738585072011e-308",
    "30 digits": b"1" * 30,
    "39 digits": b"8" * 39,
    "38 zeros, exponent": b"0." + b"0" * 36 + b"1e30",
    "800 digits": b"1." + b"7" * 800,
    "5,000 digits": b"1" * 5000,
    "5,000 digits, exponent": b"1" * 5000 + b"e-4990",
    "one number": b"1" * (SIZE - 300),
    "one number after a point": b"0." + b"1" * (SIZE - 300),
    "one number, exponent": b"1e" + b"1" * (SIZE - 300),
    "NaN": b"NaN",
    "-Infinity": b"-Infinity",
    "null": b"null",
    "true": b"true",
    "''": b'""',
    "'a'": b'"a"',
    "'nan'": b'"nan"',
    "a time": TIME,
    "[]": b"[]",
    "{}": b"{}",
    "[[]]": b"[[]]",
    "{'':0}": b'{"":0}',
    "a metric": b'{"name":"a","value":"1"}',
    "a metric, a number": b'{"name":"a","value":1.5}',
    "a metric, 0.1e-300": b'{"name":"a","value":1e-300}',
    "a METRIC": b'{"NAME":"a","VALUE":"1"}',
    "a metric, U+200B": b'{"name":"\xe2\x80\x8b","value":"\xe2\x80\x8b"}',
    "a metric, \\u0061": b'{"name":"\\u0061","value":"\\u0061"}',
    "spaces": b" ",
}
ENDS: Mapping[str, bytes] = {"": b"", ", then \\xff": b"\xff", ", then '": b'"', ", then }": b"}"}


def _values() -> Iterator[tuple[str, bytes]]:
    """Each nearly as long as a body may be."""
    room = SIZE - 300
    for name, text in TEXTS.items():
        yield f"text of {name}", b'"' + text * (room // len(text)) + b'"'
        yield f"{name} without quotes", text * (room // len(text))
        yield f"list of texts of {name}", b"[" + _joined(b'"' + text + b'"', room) + b"]"
        yield f"members named {name}", b"{" + _joined(b'"' + text + b'":0', room) + b"}"
    for name, value in VALUES.items():
        yield name, value
        yield f"list of {name}", b"[" + _joined(value, room) + b"]"
        yield f"rows of {name}", _joined(value, room)
        yield f"the same member, {name}", b"{" + _joined(b'"a":' + value, room) + b"}"
        yield f"members, {name}", b"{" + _members(value, room) + b"}"
        yield f"metrics of {name}", b"[" + _joined(b'{"name":"a","value":%s}' % value, room) + b"]"
    for depth in (50, 99, 100, 101, 1000, 5000, 9999, 20_000, room):
        yield f"{depth} [", b"[" * min(depth, room)
        yield f"{depth} [ and ]", b"[" * min(depth, room // 2) + b"]" * min(depth, room // 2)
        yield f"{depth} {{'a':", b'{"a":' * min(depth, room // 5)
    deep = b"[" * 90 + b"]" * 90
    yield "deep lists", b"[" + _joined(deep, room) + b"]"
    yield (
        "deep lists, as many as may be",
        b"[" + _joined(deep, 19_000) + b"," + _joined(b"1e22", 40_000) + b"]",
    )
    yield "deep objects", b"[" + _joined(b'{"a":' * 90 + b"0" + b"}" * 90, room) + b"]"
    yield "nothing", b""


def _joined(value: bytes, room: int) -> bytes:
    return b",".join([value] * max(1, room // (len(value) + 1)))


def _members(value: bytes, room: int) -> bytes:
    number = max(1, room // (len(value) + 10))
    return b",".join([b'"%06d":%s' % (each, value) for each in range(number)])


# Lines of logs, repeated up to the length of a line that is read, and of an answer.
LINES: Mapping[str, str] = {
    "Hugging Face": "{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '4e-05', 'epoch': '0.5'}",
    "tqdm": " 45%|████▌     | 450/1000 [01:23<01:41,  5.41it/s, a=1.5]",
    "pairs": "a=1.5 ",
    "pairs of words": "D loss is 1.5, learning rate 0.5, ",
    "positions": "step=1/10 loss=0.9 epoch: ",
    "signs": "a = b is = ",
    "names": "abc_def ",
    "records": "2026-01-23 10:30:45,123 INFO [a.py:1] step 5/10 | loss: 0.5 | ",
    "structured": '{"timestamp": "2026-01-23T10:30:45Z", "logger": "x", "message": "step=5 a=1.5 b=1.5"}',
    "JSON": '{"step":5,"loss":1e308,"a":"\\ud83d\\ude00"}',
    "documents": '{"schemaVersion":1,"timestamp":"2026-01-23T10:30:45Z","step":5,"metrics":{"loss":1e308}}',
    "escapes": "\x1b]a",
    "labels": "val: loss 0.6 test ",
    "numbers": "0.5 1K ",
    "brackets": "[1 ",
}  # fmt: skip
MAX_LINE = 8192


def logs() -> Iterator[tuple[str, bytes]]:
    """All of them, named; each line as it is, and as long as a line may be, behind a first one or not."""
    time_ = "2026-01-23T10:30:45.000000000Z "
    for name, text in LINES.items():
        for words in ("", "step=5 loss=0.5 "):
            for times in (1, max(1, (MAX_LINE - 1 - len(words)) // len(text))):
                line = f"{words}{text * times} 1"
                for end in ("\n", "\r"):
                    log = (f"{time_}{line}{end}" * (SIZE // len(line) + 1)).encode()[-SIZE:]
                    yield f"{len(line)} characters of {name} behind {words!r}, {end!r}", log


def bodies() -> Iterator[tuple[str, bytes]]:
    """All of them, named; none is longer than may be sent."""
    for place, around in PLACES.items():
        for name, value in _values():
            for end, bytes_ in ENDS.items():
                body = around.replace(HOLE, value) + bytes_
                if len(body) <= SIZE:
                    yield f"{name} as {place}{end}", body
    yield from ((name, body) for name, body in _full() if len(body) <= SIZE)


def _full() -> Iterator[tuple[str, bytes]]:
    """Reports in which everything is as large as it may be."""
    for name, text in {"ASCII": "a", "U+200B": "\u200b", "four bytes each": "\U0001f600"}.items():
        pairs = [{"name": f"{n:03}" + text * 29, "value": text * 32} for n in range(256)]
        status = {"lastUpdatedTime": "2026-01-23T10:30:45Z", "metrics": pairs, "progressPercentage": 5}
        yield f"256 metrics of {name}", json.dumps({"trainerStatus": status}, ensure_ascii=False).encode()
    for number in (0.1, 5e-324, 1.7976931348623157e308):
        rows, names = 230, 22
        document = {
            "timestamp": "2026-01-23T10:30:45Z",
            "step": 5,
            "metrics": {f"m{n}": number for n in range(200)},
            "recent": {
                "secondsBefore": [rows - row for row in range(rows)],
                "metrics": {f"m{n}": [number] * rows for n in range(names)},
            },
            "ranks": {"rank": [*range(64)], "name": ["n" * 64] * 64, "step": [5] * 64},
        }
        yield f"a full document of {number}", json.dumps(document).encode()
    yield "gzip", gzip.compress(b"0" * 60_000_000)


def _push(body: bytes) -> None:
    with contextlib.suppress(Invalid):
        read_payload(body)


READERS: Mapping[str, Callable[[bytes], object]] = {
    "push": _push,
    "file": parse_report,
    "file at an annotated path": partial(parse_report, is_path_trusted=False),
}


def cpu_s(read: Callable[[bytes], object], body: bytes, rounds: int) -> float:
    """The least of so many rounds."""
    least = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        read(body)
        least = min(least, time.thread_time() - began)
    return least


def steps_s(log: bytes) -> tuple[float, float]:
    """The longest step, and all of them."""
    steps, longest, whole = TailReader().steps(log, is_whole=True), 0.0, 0.0
    while True:
        began, is_done = time.thread_time(), next(steps, steps) is steps
        took = time.thread_time() - began
        longest, whole = max(longest, took), whole + took
        if is_done:
            return longest, whole


def show_logs(show: int) -> bool:
    worst = sorted(((*min(steps_s(log) for _ in range(ROUNDS)), name) for name, log in logs()), reverse=True)
    over = sum(longest > MOST_STEP_S for longest, *_ in worst)
    print(
        f"log: {len(worst)} logs, {over or 'none'} with a step over {1e3 * MOST_STEP_S:g} ms CPU; the worst:"
    )
    for longest, whole, name in worst[:show]:
        print(f"  {1e3 * longest:6.3f}  {1e3 * whole:7.3f} in all  {name}")
    return not over


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile_bodies", description=__doc__)
    parser.add_argument("--show", type=int, default=10, help="so many of the worst")
    given = parser.parse_args()
    gc.disable()
    is_met = True
    for reader, read in READERS.items():
        quick = [(cpu_s(read, body, 2), name, body) for name, body in bodies()]
        quick.sort(key=lambda each: -each[0])
        worst = sorted(
            ((cpu_s(read, body, ROUNDS), name, len(body)) for _, name, body in quick[: 4 * given.show]),
            reverse=True,
        )
        over = sum(spent > MOST_S for spent, _, _ in worst)
        is_met = is_met and not over
        print(f"{reader}: {len(quick)} bodies, {over or 'none'} over {1e3 * MOST_S:g} ms CPU; the worst:")
        for spent, name, length in worst[: given.show]:
            print(f"  {1e3 * spent:6.3f}  {length:6d} bytes  {name}")
    is_met = show_logs(given.show) and is_met
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
