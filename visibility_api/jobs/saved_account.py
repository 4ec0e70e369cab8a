"""An account as bytes: a part of the state of a job, and of its document."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from visibility_api.reports.fields import MAX_INTEGER

from .account import ENDED, Account
from .evidence import UNITS, WARM_ROWS
from .ledger import KINDS, MARKED, MOST_S, OTHER, Ledger

UNREADABLE_ACCOUNT = (ValueError, IndexError, struct.error)  # what `load_account` raises

_FORM = 1
_HEAD = struct.Struct("<B4d3f2I6B")
_PART = struct.Struct("<Bf")  # the place of a value that is not 0, and the value


class Head(NamedTuple):
    """What an account begins with: its own fields of these names."""

    form: int
    row_at: float
    position: float
    base: float
    highest: float
    usual: float
    deviation: float
    least: float
    pod: int
    run: int
    mode: int
    doing: int
    unit: int
    warm: int
    fruitless: int
    has_run: int


_fields = attrgetter(*Head._fields[1:])


def save_account(account: Account) -> bytes:
    head = _HEAD.pack(_FORM, *_fields(account))
    return b"".join((head, *_pack(account.given), *_pack(account.tail), account.ledger.save()))


def read_head(saved: bytes) -> Head:
    """Of what `save_account` returned; it may be anything."""
    return Head(*_HEAD.unpack_from(saved))


def load_account(saved: bytes) -> Account:
    """What `save_account` returned. Raises UNREADABLE_ACCOUNT for anything else."""
    given, at = _unpack(saved, _HEAD.size, len(MARKED))
    tail, at = _unpack(saved, at, len(KINDS))
    account = Account(Ledger.load(saved[at:]))
    account.given, account.tail = given, tail if any(tail) else []
    form, *numbers = _HEAD.unpack_from(saved)
    for name, value in zip(Head._fields[1:], numbers, strict=True):
        setattr(account, name, value)
    times = (account.row_at, account.usual, account.deviation, *account.given, *tail)
    is_possible = (
        form == _FORM
        and min(times) >= 0
        and max(times) <= MOST_S
        and sum(times) >= 0  # NaN is not
        and account.least > 0
        and not (abs(account.position) > MAX_INTEGER or abs(account.highest) > MAX_INTEGER)
        and not abs(account.base) > MAX_INTEGER
        and (account.mode <= ENDED and account.unit < len(UNITS))
        and (account.warm <= WARM_ROWS and account.doing <= OTHER)
    )
    if not is_possible:
        raise ValueError(saved)
    return account


def _pack(values: Sequence[float]) -> list[bytes]:
    """Those that are not 0."""
    parts = [_PART.pack(place, each) for place, each in enumerate(values) if each]
    return [len(parts).to_bytes(1), *parts]


def _unpack(saved: bytes, at: int, length: int) -> tuple[list[float], int]:
    """The values that are packed there, and where they end."""
    values, end = [0.0] * length, at + 1 + saved[at] * _PART.size
    for place, each in _PART.iter_unpack(saved[at + 1 : end]):
        values[place] = each
    return values, end
