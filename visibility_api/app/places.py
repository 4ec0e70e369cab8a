"""Places for requests in flight, or for open watches: so many for each class of callers, and for each user.

Callers that are not authenticated yet have none: they wait in the queues of `auth.review_admission`.
"""

from __future__ import annotations

from visibility_api.auth.identity import MASTERS_GROUP, Identity
from visibility_api.errors.status import Overloaded, TooManyRequests


class Places:
    """The places of one class."""

    __slots__ = ("_most", "_most_of_user", "_of_user", "taken")

    def __init__(self, *, most: int, most_of_user: int) -> None:
        self.taken = 0
        self._most = most
        self._most_of_user = most_of_user
        self._of_user: dict[str, int] = {}

    def enter(self, user: str) -> None:
        """Take a place, which must be given back by `leave`. Raises Overloaded or TooManyRequests."""
        if self.taken >= self._most:
            raise Overloaded
        of_user = self._of_user.get(user, 0)
        if of_user >= self._most_of_user:
            raise TooManyRequests(
                f"this user has {of_user} requests or watches open, as many as one may have; "
                "wait until one of them ends"
            )
        self._of_user[user] = of_user + 1
        self.taken += 1

    def leave(self, user: str) -> None:
        """Give a place back."""
        self.taken -= 1
        of_user = self._of_user[user] - 1
        if of_user:
            self._of_user[user] = of_user
        else:
            del self._of_user[user]  # callers choose their names: none may stay behind


class Shares:
    """Places of direct callers, of forwarded ones and of system:masters, which each class keeps."""

    def __init__(self, *, most: int, most_of_user: int) -> None:
        self._direct = Places(most=most, most_of_user=most_of_user)
        self._forwarded = Places(most=most, most_of_user=most_of_user)
        self._masters = Places(most=most, most_of_user=most)

    @property
    def taken(self) -> int:
        return self._direct.taken + self._forwarded.taken + self._masters.taken

    def of(self, identity: Identity, *, is_forwarded: bool) -> Places:
        """The places that a caller may take; `is_forwarded`: by a verified front proxy."""
        if MASTERS_GROUP in identity.groups:
            return self._masters
        return self._forwarded if is_forwarded else self._direct
