"""Text of strangers, made harmless for whoever reads it in a terminal, a log or a browser.

Pods, annotations, names of users and requests may carry escape sequences, which a terminal obeys. They may
carry characters that reorder or hide others (https://www.unicode.org/reports/tr36/, section 3). What the JSON
of a document repeats of a report is left as it was reported; all else passes through here where it leaves us.
"""

from __future__ import annotations

import re

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Printable for Python, but without a shape: Default_Ignorable_Code_Point of the Unicode database.
_SHAPELESS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)


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
