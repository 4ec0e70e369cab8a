"""A program's two streams as a container runtime writes them down and a kubelet gives them out."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
PART_BYTES = 16 * 1024  # of a line that is longer


@dataclass(frozen=True)
class Record:
    at: str
    content: bytes
    ends_line: bool


def run(directory: Path, script: str, launcher: Sequence[str] = ()) -> tuple[list[Record], Any]:
    """(the log, what the script said in truth.json) of a training that only prints."""
    (directory / "train.py").write_text(script)
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT / "reporter"), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1", "KERAS_BACKEND": "jax",
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, *launcher, "train.py"], cwd=directory, env=environ,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout
    assert process.stderr
    records = _write_down(process.stdout, process.stderr)
    assert process.wait() == 0, give_out(records).decode(errors="replace")[-3000:]
    return records, json.loads((directory / "truth.json").read_bytes())


def give_out(records: Sequence[Record]) -> bytes:
    """With `timestamps=true`: a time before each line, not before each part of one."""
    text, is_new_line = b"", True
    for record in records:
        time = f"{record.at} ".encode() if is_new_line else b""
        text += time + record.content + (b"\n" if record.ends_line else b"")
        is_new_line = record.ends_line
    return text


def _write_down(*streams: IO[bytes]) -> list[Record]:
    records: list[Record] = []
    pending = dict.fromkeys(streams, b"")
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while pending:
            for key, _ in selector.select():
                stream = key.fileobj
                assert not isinstance(stream, int)
                chunk = os.read(stream.fileno(), 65536)
                at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
                *lines, rest = (pending[stream] + chunk).split(b"\n")
                records += [part for line in lines for part in _parts(at, line)]
                while len(rest) > PART_BYTES:
                    records.append(Record(at, rest[:PART_BYTES], False))
                    rest = rest[PART_BYTES:]
                pending[stream] = rest
                if not chunk:
                    if rest:
                        records.append(Record(at, rest, True))
                    del pending[stream]
                    selector.unregister(stream)
                    stream.close()
    return records


def _parts(at: str, line: bytes) -> list[Record]:
    cut = [line[start : start + PART_BYTES] for start in range(0, len(line), PART_BYTES)] or [b""]
    return [*(Record(at, part, False) for part in cut[:-1]), Record(at, cut[-1], True)]
