"""JSON bytes in the form a client asked for: compact, indented, or YAML."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from .negotiation import JSON, Representation

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's where it is there: ten times as fast
_NO_FOLDING = 2**20  # characters a line: Go's writer folds rarely, and folded messages are hard to search


def render(body: bytes, representation: Representation) -> bytes:
    """`body`, compact JSON without a newline, in the form asked for, with one (R11, R13)."""
    if representation.media_type != JSON:
        return to_yaml(body)
    return (indent(body) if representation.pretty else body) + b"\n"


def indent(body: bytes) -> bytes:
    """The same JSON, two blanks a level, as the API server's own pretty form (R13)."""
    return msgspec.json.format(body, indent=2)


def to_yaml(body: bytes) -> bytes:
    """The same document as YAML, keys sorted, as the API server writes it (R11)."""
    text: str = yaml.dump(
        msgspec.json.decode(body),
        Dumper=_Dumper,
        allow_unicode=True,
        default_flow_style=False,
        width=_NO_FOLDING,
    )
    return text.encode()
