"""Text that errors, logs and conditions may repeat, and how an unforeseen error is described.

Pods, annotations, names of users and requests may carry escape sequences, which a terminal obeys. They may
carry characters that reorder or hide others (https://www.unicode.org/reports/tr36/, section 3). What the JSON
of a document repeats of a report is left as it was reported; all else passes through here where it leaves us.
"""

from __future__ import annotations

import json
import re
import traceback
from pathlib import PurePath

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Printable for Python, but without a shape: Default_Ignorable_Code_Point of the Unicode database.
_SHAPELESS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
_FRAMES = 6  # the innermost ones


def harmless(text: str) -> str:
    """`text` on one line: white space becomes a space, what has no shape of its own becomes U+FFFD.

    The latter are control characters (C1 too), surrogates, unassigned and private ones, and those that join
    or hide others, or change their direction.
    """
    if text.isascii() and text.isprintable():
        return text
    return _SHAPELESS.sub(REPLACEMENT, "".join(map(_harmless_character, text)))


def harmless_lines(text: str) -> str:
    """The same of each line."""
    return "\n".join(map(harmless, text.split("\n")))


def _harmless_character(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else REPLACEMENT


def quote(text: str) -> str:
    """`harmless` text in double quotes, as JSON has it."""
    return json.dumps(harmless(text), ensure_ascii=False)


def describe_fault(error: BaseException) -> dict[str, str]:
    """Fields for a log event: `error`, the class name; `at`, `file:line function`, innermost first.

    Never the text of an exception: it may quote its input, such as bytes of a pod, an annotation or a token.
    """
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    return {
        "error": type(error).__name__,
        "at": ", ".join(f"{PurePath(f.filename).name}:{f.lineno} {f.name}" for f in frames),
    }


def join_sentences(*sentences: str) -> str:
    """One after the other, but for empty ones. Controllers end their messages with a stop, or without."""
    *others, last = [each for each in sentences if each] or [""]
    return " ".join([*(each if each[-1] in ".!?:" else f"{each}." for each in others), last])


def without_markup(text: str) -> str:
    """`text` with HTML's special characters escaped, except quotes, as the API server does."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
