"""Health checks: liveness is the age of the server's own loops, readiness is filled caches.

Neither depends on other servers: when readiness fails on every replica, no client can reach the API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from visibility_api.errors.text import describe_fault, quote

log = structlog.get_logger(__name__)

ENDPOINTS = ("healthz", "livez", "readyz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One health check. `run` returns a failure's description, or None, and must not block."""

    name: str
    run: Callable[[], str | None]
    is_readiness_only: bool = False  # a failure removes the pod from the Service, but does not restart it
    # What works less well although the check passes. Anyone may read it, unlike the reason of a failure.
    note: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of the checks of one endpoint."""

    is_passed: bool
    lines: str  # one for each check, in the API server's form


class Health:
    """A fixed set of checks. It always includes `ping`, which passes whenever the server responds."""

    def __init__(self, checks: Sequence[Check]) -> None:
        """Raises ValueError when two checks share a name."""
        every = (Check(name="ping", run=lambda: None), *checks)
        self._checks = {check.name: check for check in every}
        if len(self._checks) != len(every):
            raise ValueError("two health checks share a name")
        self._failing: dict[str, frozenset[str]] = {}  # by endpoint: to log changes, not each probe

    def has(self, endpoint: str, name: str) -> bool:
        """Whether `endpoint` includes the check of this name."""
        check = self._checks.get(name)
        return check is not None and (endpoint == "readyz" or not check.is_readiness_only)

    def run(self, name: str) -> str | None:
        """The failure of one check, None when it passes."""
        try:
            return self._checks[name].run()
        except Exception as error:
            log.error("health check raised", check=name, **describe_fault(error))
            return "the check itself failed"

    def passed(self, name: str) -> str:
        """`ok`, with what works less well although the check passes."""
        note = self._checks[name].note()
        return "ok" if note is None else f"ok ({note})"

    def report(self, endpoint: str, excluded: Sequence[str]) -> Report:
        """All checks of one endpoint but the excluded ones."""
        names = [name for name in self._checks if self.has(endpoint, name)]
        lines, failures = [], {}
        for name in names:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok\n")
            elif (failure := self.run(name)) is not None:
                failures[name] = failure
                lines.append(f"[-]{name} failed: reason withheld\n")
            else:
                lines.append(f"[+]{name} {self.passed(name)}\n")
        if unknown := sorted(set(excluded).difference(names)):
            unmatched = ",".join(quote(name) for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unmatched}\n")
        self._log_change(endpoint, failures)
        return Report(is_passed=not failures, lines="".join(lines))

    def _log_change(self, endpoint: str, failures: dict[str, str]) -> None:
        now = frozenset(failures)
        if now != self._failing.get(endpoint, frozenset()):
            self._failing[endpoint] = now
            if failures:
                log.warning("health check failed", endpoint=endpoint, failures=failures)
            else:
                log.info("health check passed", endpoint=endpoint)
