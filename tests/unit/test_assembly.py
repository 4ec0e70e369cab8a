"""What the assembly does by itself while a server starts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from visibility_api import assembly


@pytest.mark.parametrize(
    ("checks_until_known", "done"),
    [(3, ["freeze", "enable"]), (10**9, ["enable"])],
    ids=["known", "never known"],
)
async def test_garbage_is_collected_once_every_job_is_known_or_the_start_takes_long(
    monkeypatch: pytest.MonkeyPatch, checks_until_known: int, done: list[str]
) -> None:
    called: list[str] = []
    collector = SimpleNamespace(
        freeze=lambda: called.append("freeze"), enable=lambda: called.append("enable")
    )
    monkeypatch.setattr(assembly, "gc", collector)
    monkeypatch.setattr(assembly, "NO_GARBAGE_CHECK_S", 0)
    left = checks_until_known

    def is_synced() -> bool:
        nonlocal left
        assert not called
        left -= 1
        return left < 0

    await assembly._collect_garbage(is_synced)
    assert called == done
