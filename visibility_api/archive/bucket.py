"""A directory or an object store, by obstore: what is read from it is bounded, its errors have one type.

Calls run on threads of this module's own: obstore's asyncio calls abort the process at its end now and then.
"""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from isal import igzip, isal_zlib

THREADS = 8
TIMEOUT = timedelta(seconds=10)  # of one request
MAX_OBJECT_BYTES = 32 * 1024 * 1024  # compressed and not: of an index of 50,000 jobs
MAX_LISTED = 200_000

_QUERY = re.compile(r"\?\S*")
_TIMES = re.compile(r" in [0-9.]+[a-zµ]+(?:, after \d+ retries, max_retries: \d+, retry_timeout: \w+)?")

T = TypeVar("T")


class Unavailable(Exception):
    """The archive cannot be used now; the message is for operators and names no secret."""


class Damaged(Unavailable):
    """One object cannot be read; others can."""


class Unusable(Exception):
    """Nothing can be kept at this location; the message says what to do."""


class Found(NamedTuple):
    """An object of the archive."""

    path: str
    tag: str  # changes with its content
    written_at: datetime
    size_bytes: int


class Bucket:
    """`location`: a directory, or a URL of s3, gs, az or file. Raises Unusable.

    Credentials of an object store are found as its own tools find them, by environment and workload identity.
    """

    def __init__(self, location: str) -> None:
        self._store = _open(location)
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="archive")

    async def put(self, path: str, content: bytes) -> None:
        """Write an object, compressed, in place of what was there. Raises Unavailable."""
        await self._call(lambda: self._store.put(path, igzip.compress(content, 2)))

    async def get(self, path: str) -> bytes | None:
        """The content, None when there is none. Raises Unavailable, also for what is too large or damaged."""
        return await self._call(lambda: self._get(path))

    async def delete(self, path: str) -> bool:
        """Whether it was there. Raises Unavailable."""

        def delete() -> bool:
            try:
                self._store.delete(path)
            except FileNotFoundError:
                return False
            return True

        return await self._call(delete)

    async def objects(self, prefix: str) -> list[Found]:
        """Objects below a prefix, MAX_LISTED at most. Raises Unavailable."""
        return await self._call(lambda: list(islice(self._list(prefix), MAX_LISTED)))

    async def prefixes(self, prefix: str) -> list[str]:
        """What follows the prefix, until the next slash. Raises Unavailable."""
        return await self._call(lambda: [f"{each}/" for each in self._below(prefix)])

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except Unavailable:
            raise
        except Exception as error:  # obstore's, whose texts have debug output of several lines
            raise Unavailable(_describe(error)) from error

    # --- on a thread

    def _get(self, path: str) -> bytes | None:
        try:
            found = self._store.get(path)
        except FileNotFoundError:
            return None
        if found.meta["size"] > MAX_OBJECT_BYTES:
            raise Damaged(f"{path} is larger than {MAX_OBJECT_BYTES} bytes")
        unpack = isal_zlib.decompressobj(wbits=31)
        try:
            content = unpack.decompress(bytes(found.bytes()), MAX_OBJECT_BYTES)
        except (zlib.error, isal_zlib.error) as error:  # type: ignore[misc]  # typed as an instance
            raise Damaged(f"{path} is damaged: {error}") from error
        if not unpack.eof:
            raise Damaged(f"{path} is cut, or larger than {MAX_OBJECT_BYTES} bytes")
        return content

    def _below(self, prefix: str) -> list[str]:
        found: list[str] = self._store.list_with_delimiter(prefix)["common_prefixes"]
        return found

    def _list(self, prefix: str) -> Iterator[Found]:
        for batch in self._store.list(prefix):
            for each in batch:
                yield Found(each["path"], each["e_tag"] or "", each["last_modified"], each["size"])


def _open(location: str) -> Any:  # noqa: ANN401 - a store of an optional package
    try:
        from obstore.store import LocalStore, from_url
    except ImportError as error:
        raise Unusable("--archive needs the package obstore: install trainjob-visibility[archive]") from error
    retries: Any = {"max_retries": 2, "retry_timeout": TIMEOUT}
    # obstore reads this variable only where no options are given.
    is_plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
    limits: Any = {"timeout": TIMEOUT, "connect_timeout": TIMEOUT, "allow_http": is_plain}
    try:
        if location.startswith(("/", "file://")):
            return LocalStore(location.removeprefix("file://"), mkdir=True)
        return from_url(location, client_options=limits, retry_config=retries)
    except Exception as error:
        raise Unusable(f"--archive {location} cannot be used: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    """The first line of obstore's text, without the query of a signed URL, and without times: the same fault
    is logged once."""
    line = _TIMES.sub("", (str(error).strip().splitlines() or [""])[0])
    return f"{type(error).__name__}: {_QUERY.sub('', line)}"[:300]
