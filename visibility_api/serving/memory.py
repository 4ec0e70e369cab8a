"""Gives memory back to the operating system after many connections have gone."""

from __future__ import annotations

import ctypes


def trim_memory() -> None:
    """Return what the C library keeps of freed memory; takes some milliseconds.

    OpenSSL frees what a connection took in many small pieces, and glibc returns only what is at the end of
    its heap. Does nothing with another C library.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
