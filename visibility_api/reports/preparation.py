"""What the end of an initializer's log shows of its progress. Pure: hostile bytes in, a few words out.

Kubeflow Trainer's download with huggingface_hub, which draws a bar of the files; others print what they like.
Only words of ours and numbers come out: who may read a job's progress may not read its logs.
"""

from __future__ import annotations

import re

from trainjob_progress.lines import find_bar

from .log_tail import MAX_READ_BYTES

MAX_DRAWINGS = 64  # of the end of the log; a bar that other lines hide for longer is not looked for

_BREAKS = re.compile(r"[\r\n\x08]+")
_FILES = re.compile(r"\bfetching \d{1,9} files\b", re.IGNORECASE)
_ACTIVITY = re.compile(
    r"\b(?:caching|copying|converting|downloading|encoding|extracting|fetching|filtering|generating|indexing"
    r"|loading|mapping|packing|preparing|processing|reading|resolving|saving|tokenizing|unpacking|uploading"
    r"|verifying|writing)\b",
    re.IGNORECASE,
)


def preparation(data: bytes) -> str | None:
    """`Fetching 12 files 41 % (5/12)`: the bar of the files as long as some lack, else the bar drawn last.
    None where the end of the log shows no bar that counts."""
    newest: str | None = None
    text = data[-MAX_READ_BYTES:].decode("utf-8", "replace")
    bars = (piece for piece in reversed(_BREAKS.split(text)) if "%" in piece)
    for _, piece in zip(range(MAX_DRAWINGS), bars, strict=False):
        drawing = find_bar(piece)
        if drawing is None or drawing.total == 0 or drawing.step > drawing.total:
            continue
        done = f"{100 * drawing.step // drawing.total} % ({drawing.step}/{drawing.total})"
        if _FILES.search(drawing.description):
            done = f"Fetching {drawing.total} files {done}"
            if drawing.step < drawing.total:
                return done
        elif activity := _ACTIVITY.search(drawing.description):
            done = f"{activity.group().capitalize()} {done}"
        newest = newest or done
    return newest
