"""An account as bytes: a part of the state of a job, and of its document."""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import NamedTuple

from visibility_api.reports.fields import MAX_INTEGER

from .account import PREPARING, Account
from .evidence import UNITS, WARM_ROWS
from .ledger import KINDS, MARKED, MOST_S, OTHER, Ledger, pack, unpack

UNREADABLE_ACCOUNT = (ValueError, IndexError, struct.error)  # what `load_account` raises

_FORM = 2
_HEAD = struct.Struct("<B2d2f2I6B")
_BEFORE = struct.Struct("<d")  # of one that has run before: `highest`
_FIRST_STEPS = struct.Struct("<2d")  # until what a step takes is known: `base`, `least`


class Head(NamedTuple):
    """What an account begins with: its own fields of these names."""

    form: int
    row_at: float
    position: float
    usual: float
    deviation: float
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
    parts = [_HEAD.pack(_FORM, *_fields(account))]
    if account.has_run:
        parts.append(_BEFORE.pack(account.highest))
    if account.warm < WARM_ROWS:
        parts.append(_FIRST_STEPS.pack(account.base, account.least))
    parts += (pack((*account.given, account.prepared_s), "f"), pack(account.tail, "f"), account.ledger.save())
    return b"".join(parts)


def read_head(saved: bytes) -> Head:
    """Of what `save_account` returned; it may be anything."""
    return Head(*_HEAD.unpack_from(saved))


def load_account(saved: bytes) -> Account:
    """What `save_account` returned. Raises UNREADABLE_ACCOUNT for anything else."""
    at = _HEAD.size
    account = Account(Ledger(0.0))
    (
        form, account.row_at, account.position, account.usual, account.deviation, account.pod, account.run,
        account.mode, account.doing, account.unit, account.warm, account.fruitless, account.has_run,
    ) = _HEAD.unpack_from(saved)  # fmt: skip
    if account.has_run:
        (account.highest,) = _BEFORE.unpack_from(saved, at)
        at += _BEFORE.size
    if account.warm < WARM_ROWS:
        account.base, account.least = _FIRST_STEPS.unpack_from(saved, at)
        at += _FIRST_STEPS.size
    (*account.given, account.prepared_s), at = unpack(saved, at, len(MARKED) + 1, "f")
    tail, at = unpack(saved, at, len(KINDS), "f")
    account.tail = tail if any(tail) else []
    account.ledger = Ledger.load(saved[at:])
    times = (account.row_at, account.usual, account.deviation, account.prepared_s, *account.given, *tail)
    is_possible = (
        form == _FORM
        and min(times) >= 0
        and max(times) <= MOST_S
        and sum(times) >= 0  # NaN is not
        and account.least > 0
        and not (abs(account.position) > MAX_INTEGER or abs(account.highest) > MAX_INTEGER)
        and not abs(account.base) > MAX_INTEGER
        and (account.mode <= PREPARING and account.unit < len(UNITS))
        and (account.warm <= WARM_ROWS and account.doing <= OTHER)
    )
    if not is_possible:
        raise ValueError(saved)
    return account
