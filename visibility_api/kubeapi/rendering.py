"""Renders JSON as compact JSON, indented JSON or YAML."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from .negotiation import JSON, Representation

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's, if installed: ten times as fast
_NO_FOLDING = 2**20  # characters a line: Go's writer folds rarely, and folded messages are hard to search


class _Dumper(_Base):  # type: ignore[misc]
    """Quotes the texts that other readers than PyYAML take for a number or a boolean, too."""


# YAML 1.2, and Go's sigs.k8s.io/yaml: `1e-05`, `08` and `0o7` are numbers, `y` is true.
_NUMBER = re.compile(r"[-+]?(?:(?:\.[0-9_]*|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0[oO][0-7]+)$")
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))


def render(body: bytes, representation: Representation) -> bytes:
    """`body`, compact JSON without a newline, in the negotiated form with one."""
    if representation.media_type != JSON:
        return to_yaml(body)
    return (indent(body) if representation.pretty else body) + b"\n"


# msgspec's own way takes 16 us for a number such as 1e308, which a history may have hundreds of.
_decode = msgspec.json.Decoder(float_hook=float).decode


def indent(body: bytes) -> bytes:
    """The same JSON with two spaces a level, as the API server's pretty form."""
    return msgspec.json.format(body, indent=2)


def to_yaml(body: bytes) -> bytes:
    """The same document as YAML with sorted keys, as the API server writes it."""
    text: str = yaml.dump(
        _decode(body),
        Dumper=_Dumper,
        allow_unicode=True,
        default_flow_style=False,
        width=_NO_FOLDING,
    )
    return text.encode()
