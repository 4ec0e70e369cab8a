"""`/healthz`, `/livez`, `/readyz`: what kubelets and people ask without credentials (D17 to D19, P9).

Liveness is the age of our own loops, readiness is filled caches; neither is the health of others: a
readiness that fails everywhere takes the API away from every client (D2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from .message import Handler, Request, Response
from .quoting import quote

log = structlog.get_logger(__name__)

_TEXT = "text/plain; charset=utf-8"
_NO_SNIFFING = ((b"x-content-type-options", b"nosniff"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question about ourselves. `run` gives a failure in our own words, or None, and never waits."""

    name: str
    run: Callable[[], str | None]
    is_readiness_only: bool = False  # a failure takes us out of rotation, but does not restart us


def ping() -> str | None:
    """Succeeds whenever anything answers at all."""
    return None


class Health:
    """The health endpoints over a fixed set of checks; `ping` is always among them."""

    def __init__(self, checks: Sequence[Check]) -> None:
        """Raises ValueError when two checks share a name."""
        every = (Check(name="ping", run=ping), *checks)
        if len({check.name for check in every}) != len(every):
            raise ValueError("two health checks share a name")
        self._ready = every
        self._live = tuple(check for check in every if not check.is_readiness_only)
        self._failing: dict[str, frozenset[str]] = {}  # by endpoint: to log changes, not each probe

    def endpoints(self) -> dict[str, Handler]:
        """By exact path: the three roots, and each check's own (D19)."""
        handlers: dict[str, Handler] = {}
        for root, checks in (("healthz", self._live), ("livez", self._live), ("readyz", self._ready)):
            handlers[f"/{root}"] = self._root(root, checks)
            for check in checks:
                handlers[f"/{root}/{check.name}"] = self._single(check)
        return handlers

    def _root(self, name: str, checks: Sequence[Check]) -> Handler:
        async def show(request: Request) -> Response:
            excluded = dict.fromkeys(v for k, v in request.query if k == "exclude")
            unknown = [n for n in excluded if all(n != check.name for check in checks)]
            lines, failures = [], {}
            for check in checks:
                if check.name in excluded:
                    lines.append(f"[+]{check.name} excluded: ok\n")
                elif (failure := _run(check)) is not None:
                    failures[check.name] = failure
                    lines.append(f"[-]{check.name} failed: reason withheld\n")  # this path is public
                else:
                    lines.append(f"[+]{check.name} ok\n")
            if unknown:
                names = ",".join(quote(n) for n in sorted(unknown))
                lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
            self._log_change(name, failures)
            if failures:
                return _text("".join(lines) + f"{name} check failed\n", status=500)  # always verbose (D17)
            if request.parameter("verbose") is None:
                return _text("ok")
            return _text("".join(lines) + f"{name} check passed\n")

        return show

    def _single(self, check: Check) -> Handler:
        async def show(_: Request) -> Response:
            failure = _run(check)
            if failure is None:
                return _text("ok")
            return _text(f"internal server error: {failure}\n", status=500)

        return show

    def _log_change(self, name: str, failures: dict[str, str]) -> None:
        now = frozenset(failures)
        if now != self._failing.get(name, frozenset()):
            self._failing[name] = now
            if failures:
                log.warning("health check failed", endpoint=name, failures=failures)
            else:
                log.info("health check passed", endpoint=name)


def _run(check: Check) -> str | None:
    try:
        return check.run()
    except Exception:
        log.exception("health check raised", check=check.name)
        return "the check itself failed"


def _text(body: str, *, status: int = 200) -> Response:
    return Response(status=status, content_type=_TEXT, body=body.encode(), headers=_NO_SNIFFING)
