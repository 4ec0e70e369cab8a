"""The Warning header: remarks that kubectl prints beside an answer (R16)."""

from __future__ import annotations

MAX_WARNING_BYTES = 4096  # of one answer, as the API server's own limit


def warning_header(text: str) -> tuple[bytes, bytes]:
    """`Warning: 299 - "text"` in one line, quotes and backslashes escaped, cut when too long."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    kept = printable.encode()[: MAX_WARNING_BYTES // 2].decode(errors="ignore")  # escaping may double it
    quoted = kept.replace("\\", "\\\\").replace('"', '\\"')
    return b"warning", f'299 - "{quoted}"'.encode()
