"""The serving certificate in files that somebody else renews, such as cert-manager."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from visibility_api.auth.errors import TrustUnusable
from visibility_api.kube.pem import describe_pair_fault
from visibility_api.serving.tls import Pair, ServingTls

log = structlog.get_logger("visibility.tls")

# Between two checks of the files; kube-apiserver checks its own every minute
# (k8s.io/apiserver/pkg/server/dynamiccertificates: FileRefreshDuration).
FILES_INTERVAL_S = 30.0
SETTLE_S = 180.0  # a kubelet takes up to two minutes to bring a changed Secret into a pod


class CertificateFiles:
    """A certificate chain and its key, each a PEM file."""

    settle_s = SETTLE_S
    fault: str | None = None  # why they are not in use now

    def __init__(self, certificate_file: Path, key_file: Path) -> None:
        self._files = (certificate_file, key_file)

    async def load(self) -> Pair:
        """Raises TrustUnusable."""
        return self.read()

    def read(self) -> Pair:
        """Raises TrustUnusable for what is not a certificate and its key."""
        if fault := describe_pair_fault(*self._files):
            raise TrustUnusable(f"the serving certificate cannot be used: {fault}")
        return Pair(*(file.read_bytes() for file in self._files))

    async def follow(self, tls: ServingTls, *, interval_s: float = FILES_INTERVAL_S) -> None:
        """Renew what is served whenever they change. Half-written ones are tried again."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                if tls.renew(self.read()):
                    log.info("serving certificate reloaded", file=str(self._files[0]))
                self.fault = None
            except (TrustUnusable, OSError) as error:
                if str(error) != self.fault:
                    self.fault = str(error)
                    log.error("serving certificate not reloaded", error=self.fault)
