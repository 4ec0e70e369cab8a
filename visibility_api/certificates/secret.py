"""The serving certificate that replicas make and renew themselves, kept in a Secret that all of them read.

Each replica does the same, and the others follow the first: kube-apiserver refuses a write that was worked
out from an older version of the Secret. CAs are published long before they sign: in the APIService, for
kube-apiserver, and in a ConfigMap, for jobs that push.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import structlog

from visibility_api.auth.errors import TrustUnusable
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, ClusterError
from visibility_api.serving.tls import Pair, ServingTls

from .renewal import CA, Kept, decode, renew

log = structlog.get_logger("visibility.certificate")

CONFIG_MAP = "visibility-api-ca"
SERVICE = "visibility-api"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.trainer.kubeflow.org"
LONGEST_INTERVAL_S = 60.0
FIRST_RETRY_S = 1.0  # an installation may begin the pod before there is an APIService, or a right to it
LONGEST_SETTLE_S = 180.0  # until every replica has read the Secret, after failures too
ATTEMPTS = 5  # when other replicas write at the same moment
START_S = 30.0  # for kube-apiserver to be reached, and the Secret to be there, when this process begins
_PATCH = {"Content-Type": "application/merge-patch+json"}


class _Meta(msgspec.Struct):
    resourceVersion: str = ""


class _Spec(msgspec.Struct):
    caBundle: str | None = None


class _Object(msgspec.Struct):
    """A Secret, a ConfigMap or an APIService."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    data: dict[str, str] | None = None
    spec: _Spec | None = None


class CertificateSecret:
    """`load` once, then `follow` for as long as the server runs."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        lifetime: timedelta,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`lifetime`: of a serving certificate."""
        core = f"/api/v1/namespaces/{namespace}"
        self._client = client
        self._secret = f"{core}/secrets/{name}"
        self._config_map = f"{core}/configmaps/{CONFIG_MAP}"
        self._names = [f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local"]
        self._lifetime = lifetime
        self._now = now
        self._kept = Kept()
        self._interval_s = min(LONGEST_INTERVAL_S, lifetime.total_seconds() / 40)
        self.fault: str | None = None  # why it cannot be renewed or published now

    @property
    def settle_s(self) -> float:
        """After which every replica has read a change of the Secret."""
        return min(LONGEST_SETTLE_S, 3 * self._interval_s)

    async def load(self) -> Pair:
        """The certificate to begin with. Raises ClusterError after half a minute without one."""
        give_up = asyncio.get_running_loop().time() + START_S
        while True:
            try:
                return await self._agreed()
            except (ClusterError, msgspec.MsgspecError) as error:
                if asyncio.get_running_loop().time() > give_up or _is_final(error):
                    raise ClusterError(self._describe(error)) from error
                await asyncio.sleep(1.0)

    async def follow(self, tls: ServingTls) -> None:
        """Renew and publish, for ever; what fails is tried again, soon and then as seldom as the rest."""
        retry_s = FIRST_RETRY_S
        while True:
            fault = None
            try:
                pair = await self._agreed()
                try:
                    await self._publish()
                finally:  # a CA was published long before it signs: that this fails now is no reason to wait
                    if tls.renew(pair):
                        log.info("serving certificate renewed", served_in_s=self.settle_s)
            except (ClusterError, TrustUnusable, msgspec.MsgspecError) as error:
                fault = self._describe(error)
                if fault != self.fault:
                    log.error("serving certificate not renewed or not published", error=fault)
            self.fault = fault
            pause_s = self._interval_s if fault is None else min(retry_s, self._interval_s)
            retry_s = FIRST_RETRY_S if fault is None else retry_s * 2
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.0))

    async def _agreed(self) -> Pair:
        """What the Secret has, after it was renewed if it had to be."""
        for _ in range(ATTEMPTS):
            secret = msgspec.json.decode(await self._client.get(self._secret), type=_Object)
            found = decode(_decoded(secret.data))
            # If it was emptied, the CAs that clients trust already go back into it.
            known = self._kept if found.pair is None and self._kept.pair is not None else found
            wanted, pair = renew(known, self._names, self._lifetime, self._now())
            if wanted is not found:
                data = {name: base64.b64encode(each).decode() for name, each in wanted.encode().items()}
                try:
                    await self._patch(self._secret, {"data": data}, version=secret.metadata.resourceVersion)
                except ApiError as error:
                    if error.status == 409:  # another replica was faster
                        continue
                    raise
                log.info("serving certificate written", secret=self._secret)
            self._kept = wanted
            return pair
        raise ClusterError("other replicas have changed it at each attempt")

    async def _publish(self) -> None:
        bundle = self._kept.bundle
        encoded = base64.b64encode(bundle).decode()
        found = msgspec.json.decode(await self._client.get(API_SERVICE), type=_Object)
        if found.spec is None or found.spec.caBundle != encoded:
            await self._patch(API_SERVICE, {"spec": {"caBundle": encoded}})
            log.info("CAs published", apiservice=API_SERVICE, count=len(self._kept.authorities))
        found = msgspec.json.decode(await self._client.get(self._config_map), type=_Object)
        if (found.data or {}).get(CA) != bundle.decode():
            await self._patch(self._config_map, {"data": {CA: bundle.decode()}})

    async def _patch(self, path: str, change: dict[str, Any], *, version: str = "") -> None:
        if version:
            change = {"metadata": {"resourceVersion": version}, **change}
        await self._client.patch(path, msgspec.json.encode(change), query=(), headers=_PATCH)

    def _describe(self, error: Exception) -> str:
        return f"{self._secret}: {'no Secret' if isinstance(error, msgspec.MsgspecError) else error}"


def _is_final(error: Exception) -> bool:
    """Trying again soon does not help."""
    return isinstance(error, ApiError) and error.status in (401, 403)


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, each in (data or {}).items():
        with suppress(binascii.Error, ValueError):
            found[name] = base64.b64decode(each)
    return found
