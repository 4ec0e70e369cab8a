"""Items of client addresses, or of clients that are known, which take turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

NEWEST_EACH = 4  # turns of an address


class Item(Protocol):
    """What came from a client."""

    site: str  # what tells clients apart: `auth.review_admission.site_of` its address


T = TypeVar("T", bound=Item)


class ByAddress(Generic[T]):
    """A set. Of one address the oldest item is taken first, but each fourth time the newest: neither a crowd
    that keeps coming nor one that came before delays a client for long."""

    def __init__(self) -> None:
        self._of_site: dict[str, dict[T, None]] = {}  # the next to be taken from first; its oldest first
        self._turns: dict[str, int] = {}  # taken of each address of `_of_site`
        self._sites: dict[T, str] = {}  # of each item, as it was added

    def __len__(self) -> int:
        return len(self._sites)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._of_site.values())

    def add(self, item: T, client: str = "") -> None:
        """`client`: who has sent it, if that is known; else its address takes turns."""
        if item not in self._sites:
            site = self._sites[item] = client or item.site
            self._of_site.setdefault(site, {})[item] = None

    def discard(self, item: T) -> None:
        site = self._sites.pop(item, None)
        if site is None:
            return
        of_site = self._of_site[site]
        del of_site[item]
        if not of_site:
            del self._of_site[site]
            self._turns.pop(site, None)

    @property
    def next_site(self) -> str:
        """Of the next item; there must be one."""
        return next(iter(self._of_site))

    def take(self) -> T:
        """Remove the next item; there must be one."""
        site, of_site = next(iter(self._of_site.items()))
        turn = self._turns[site] = self._turns.get(site, 0) + 1
        item = next(iter(of_site) if turn % NEWEST_EACH else reversed(of_site))
        self.discard(item)
        if of_site:
            self._of_site[site] = self._of_site.pop(site)
        return item

    def oldest_of_most(self) -> T:
        """The oldest item of the address that has most."""
        _, crowd = max(self._of_site.items(), key=lambda each: len(each[1]))
        return next(iter(crowd))
