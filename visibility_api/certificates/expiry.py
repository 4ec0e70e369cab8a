"""What is said of a serving certificate that is not renewed in time: in health checks, and in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from cryptography import x509

from visibility_api.auth.errors import TrustUnusable
from visibility_api.serving.tls import Pair

from .making import BACKDATED

log = structlog.get_logger("visibility.certificate")

NOTED, FAILED = timedelta(days=30), timedelta(days=3)  # before its end; of one that lives long
NOTED_SHARE, FAILED_SHARE = 4, 10  # of its life that is left; of one that lives shorter
REMIND_S = 3600.0
_MEND = 'renew it: docs/install.md, "Certificates"'


def utc_now() -> datetime:
    return datetime.now(UTC)


class Expiry:
    """Of the certificate that `served` returns now."""

    def __init__(self, served: Callable[[], Pair], clock: Callable[[], datetime] = utc_now) -> None:
        self._served = served
        self._now = clock

    @property
    def ends(self) -> datetime:
        return self._certificate().not_valid_after_utc

    @property
    def lifetime(self) -> timedelta:
        return _life(self._certificate())

    def note(self) -> str | None:
        """That it ends soon; None while it does not."""
        certificate = self._certificate()
        return self._said(certificate, min(NOTED, _life(certificate) / NOTED_SHARE))

    def failure(self) -> str | None:
        """That it ends very soon, or has ended."""
        certificate = self._certificate()
        return self._said(certificate, min(FAILED, _life(certificate) / FAILED_SHARE))

    def require_valid(self) -> None:
        """Raises TrustUnusable for one that has ended: no client would accept it."""
        if self.ends <= self._now():
            raise TrustUnusable(f"the serving certificate ended on {self.ends:%Y-%m-%d %H:%M} UTC: {_MEND}")

    async def remind(self) -> None:
        """Say so in the log each hour, for ever."""
        while True:
            if self.ends <= self._now():
                log.error(
                    "serving certificate has ended: no client accepts it", ended=str(self.ends), do=_MEND
                )
            elif (note := self.note()) is not None:
                log.warning("serving certificate ends soon", note=note, do=_MEND)
            await asyncio.sleep(REMIND_S)

    def _said(self, certificate: x509.Certificate, before: timedelta) -> str | None:
        left = certificate.not_valid_after_utc - self._now()
        if left > before:
            return None
        ends = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        return (
            f"the certificate ended on {ends}" if left <= timedelta() else f"the certificate ends on {ends}"
        )

    def _certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self._served().certificate)


def _life(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - certificate.not_valid_before_utc - BACKDATED
