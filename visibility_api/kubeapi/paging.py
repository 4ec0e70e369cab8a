"""The entries of one list request: its revision, its page and its continue token.

As in `k8s.io/apiserver/pkg/storage/continue.go`. A token has revision and position: all pages show the state
of the first one.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from visibility_api.errors.status import BadRequest, Expired, TooLargeResourceVersion
from visibility_api.jobs.job import list_order
from visibility_api.kubeapi.selectors.selection import Selection, name_of
from visibility_api.store import Entry, Listing, Resources, RevisionExpired
from visibility_api.store.memory import MemoryStore

from .list_options import ListOptions

_MAX_TOKEN_CHARACTERS = 2048  # two names and a number
_CURRENT = -1  # in a token: continue with the current state, at the price of an inconsistent list

_TOO_OLD = "The resourceVersion for the provided list is too old."
_TOKEN_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)

T = TypeVar("T")
_Place = tuple[str, str]  # namespace and name of the last entry shown


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a continue token: revision, and the last object shown."""

    rv: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of one list response."""

    revision: int  # the same for all pages of a list
    entries: Sequence[Entry]
    continue_token: str = ""
    remaining: int | None = None  # how many follow, if known

    def list_meta(self) -> bytes:
        """The list's `metadata` as JSON."""
        meta: dict[str, str | int] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            meta["continue"] = self.continue_token
        if self.remaining is not None:
            meta["remainingItemCount"] = self.remaining
        return msgspec.json.encode(meta)


async def find_page(
    store: MemoryStore, resources: Resources, namespace: str | None, options: ListOptions
) -> Page:
    """The page that a list requests; `namespace` None = all.

    Raises BadRequest, Expired, TooLargeResourceVersion.
    """
    listing, after = _state(store, resources, namespace, options)
    entries = candidates(listing.entries, namespace, options.selection)
    if after is not None:
        entries = entries[bisect_right(entries, list_order(*after), key=_order_of(options.selection)) :]
    is_all = options.selection.is_everything
    if not options.limit:
        if not is_all:
            entries, _ = await _matching(entries, options.selection, len(entries))
        return Page(revision=listing.revision, entries=entries)
    if is_all:
        shown, rest = entries[: options.limit], len(entries) - options.limit
    else:
        shown, rest = await _matching(entries, options.selection, options.limit)
    if rest <= 0:
        return Page(revision=listing.revision, entries=shown)
    return Page(
        revision=listing.revision,
        entries=shown,
        continue_token=encode_token(listing.revision, _place(shown[-1], options.selection)),
        remaining=rest if is_all else None,  # of a selector it is not known
    )


def check_revision(store: MemoryStore, options: ListOptions) -> None:
    """Raises TooLargeResourceVersion for a revision that the store does not include."""
    requested = options.revision or 0
    if not store.includes(requested):
        raise TooLargeResourceVersion(requested, store.revision)


def candidates(entries: Sequence[Entry], namespace: str | None, selection: Selection) -> Sequence[Entry]:
    """The entries to match: at most one when the selection names it, as kubectl's `wait` and `get -w` do."""
    name = selection.fields.required("metadata.name")
    namespace = namespace or selection.fields.required("metadata.namespace")
    if name is None or namespace is None:
        return entries
    place = bisect_left(entries, list_order(namespace, name), key=_order_of(selection))
    return entries[place : place + 1]


async def _matching(
    entries: Sequence[Entry], selection: Selection, limit: int
) -> tuple[Sequence[Entry], int]:
    """The first `limit` entries that match, and how many come after the last of them, matching or not."""
    shown, at_once = list[Entry](), selection.matched_at_once
    for at, entry in enumerate(entries):
        if at % at_once == at_once - 1:
            await asyncio.sleep(0)
        if selection.matches(entry.document):
            shown.append(entry)
            if len(shown) == limit:
                return shown, len(entries) - at - 1
    return shown, 0


def _state(
    store: MemoryStore, resources: Resources, namespace: str | None, options: ListOptions
) -> tuple[Listing, _Place | None]:
    """The state of the requested revision, and the place after which the page begins."""
    token = read_token(options)
    if token is not None:
        return _continued(store, resources, namespace, token)
    check_revision(store, options)
    if not options.is_exact:
        return store.list(resources, namespace), None
    try:
        return store.list(resources, namespace, at=options.revision), None
    except RevisionExpired as error:
        raise Expired(_TOO_OLD) from error


def _continued(
    store: MemoryStore, resources: Resources, namespace: str | None, token: Token
) -> tuple[Listing, _Place]:
    after = (token.namespace, token.name)
    if token.rv == _CURRENT:
        return store.list(resources, namespace), after
    try:
        return store.list(resources, namespace, at=token.rv), after
    except RevisionExpired as error:
        raise Expired(_TOKEN_TOO_OLD, continue_token=encode_token(_CURRENT, after)) from error


def read_token(options: ListOptions) -> Token | None:
    """The continue token of a list; None without one. Raises BadRequest."""
    if not options.continue_token:
        return None
    token = unpack_token(options.continue_token, Token)
    if options.revision:
        raise BadRequest("specifying resource version is not allowed when using continue")
    return token


def _order_of(selection: Selection) -> Callable[[Entry], tuple[str, str]]:
    return lambda entry: list_order(*_place(entry, selection))


def _place(entry: Entry, selection: Selection) -> _Place:
    ref = entry.document.job.ref
    return ref.namespace, name_of(ref, is_mixed=selection.is_mixed)


def encode_token(revision: int, after: _Place) -> str:
    """The continue token after the object at `after`, namespace and name."""
    return pack_token(Token(rv=revision, namespace=after[0], name=after[1]))


def pack_token(content: msgspec.Struct) -> str:
    """A continue token."""
    return urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=").decode()


def unpack_token(text: str, content_type: type[T]) -> T:
    """The content of a continue token. Raises BadRequest."""
    try:
        if len(text) > _MAX_TOKEN_CHARACTERS:
            raise ValueError
        token = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        return msgspec.json.decode(token, type=content_type)
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError) as error:
        raise BadRequest("invalid continue token: continue key is not valid") from error
