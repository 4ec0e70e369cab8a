"""The rights of the server's service account: which its arguments need, and which of them it has not.

A pod of a newer version that comes before its rights is not ready, so that a rollout stops at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from visibility_api.auth.access_review import ReviewedAccess
from visibility_api.errors.text import describe_fault
from visibility_api.kinds import BUILT_IN, USERS
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ClusterError
from visibility_api.models.sources import SOURCE_TYPES, SourceType
from visibility_api.settings import Settings

log = structlog.get_logger("visibility.rights")

SELF_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RETRY_S = 5.0  # until all are there
_NAMED = 4  # rights, in one sentence


@dataclass(frozen=True, slots=True)
class Right:
    """`api`: its path, without the resource. `part`: of deploy/ that grants it. `is_optional`: an operator
    may leave it out."""

    verb: str
    api: str
    resource: str
    part: str
    namespace: str = ""  # "": in all
    name: str = ""
    subresource: str = ""
    is_optional: bool = False

    def __str__(self) -> str:
        below = f"/{self.subresource}" if self.subresource else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{below}{where}"

    @property
    def group(self) -> str:
        _, *group, _version = self.api.strip("/").split("/")  # the core group has no name
        return "".join(group)

    def attributes(self, namespace: str = "") -> dict[str, str]:
        """For a review, in that namespace if it is a right in all."""
        return {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace or namespace,
            "name": self.name,
        }


def _rights_of(source: SourceType) -> Iterator[Right]:
    for each in source.rights:
        verb, api, resource = each.split()
        resource, _, below = resource.partition("/")
        part, is_optional = f"components/source-{source.name}", source.may_lack_rights
        yield Right(verb, api, resource, part, subresource=below, is_optional=is_optional)


# By what has to be among the arguments of the server.
_SWITCHED_ON = {
    **{f"--sources={each.name}": [*_rights_of(each)] for each in SOURCE_TYPES},
    "--events=true": [Right("create", "/apis/events.k8s.io/v1", "events", "components/events")],
    "--node-faults=true": [
        Right("get", "/api/v1", "nodes", "components/node-faults"),
        Right("list", "/api/v1", "events", "components/node-faults", "default"),
    ],
    "--archive": [
        Right("get", "/api/v1", "namespaces", "components/archive"),
        Right("list", "/api/v1", "events", "components/archive", is_optional=True),
    ],
    "--write-back=true": [
        Right(
            "patch",
            "/apis/trainer.kubeflow.org/v1alpha1",
            "trainjobs",
            "components/write-back",
            subresource="status",
        )
    ],
}


def needed(arguments: Sequence[str], namespace: str) -> Iterator[Right]:
    """What a server with these arguments needs; `namespace`: its own one."""
    for objects in USERS:
        is_optional = objects.plural not in BUILT_IN.required
        for verb in ("list", "watch"):
            yield Right(verb, objects.api, objects.plural, "base", is_optional=is_optional)
    yield Right("create", "/apis/authentication.k8s.io/v1", "tokenreviews", "base")
    yield Right("create", "/apis/authorization.k8s.io/v1", "subjectaccessreviews", "base")
    extension = "extension-apiserver-authentication"
    yield Right("get", "/api/v1", "configmaps", "base", "kube-system", extension)
    if any(each.startswith(("--peers", "--store=")) for each in arguments):
        yield Right(
            "patch", "/apis/coordination.k8s.io/v1", "leases", "base", namespace, "trainjob-visibility"
        )
    for each in arguments:
        if each.startswith("--certificate-secret="):
            yield Right("patch", "/api/v1", "secrets", "base", namespace, each.partition("=")[2])
            name = "v1alpha1.visibility.trainer.kubeflow.org"
            yield Right("patch", "/apis/apiregistration.k8s.io/v1", "apiservices", "base", "", name)
        yield from _SWITCHED_ON.get("--archive" if each.startswith("--archive=") else each, ())


def needed_by(settings: Settings) -> list[Right]:
    """Without those that an operator may leave out."""
    arguments = [
        *(f"--peers={peer}" for peer in settings.peers),
        *(f"--store={server}" for server in settings.store),
        *(f"--sources={source}" for source in settings.sources),
        *([f"--certificate-secret={settings.certificate_secret}"] if settings.certificate_secret else []),
        *([f"--archive={settings.archive}"] if settings.archive else []),
        *(["--events=true"] if settings.events else []),
        *(["--node-faults=true"] if settings.node_faults else []),
        *(["--write-back=true"] if settings.write_back else []),
    ]
    found = dict.fromkeys(needed(arguments, settings.lease_namespace))
    return [right for right in found if not right.is_optional]


class Rights:
    """Those that this process has. `namespaces`: that are served; none: all of them."""

    def __init__(self, client: KubeClient, rights: Sequence[Right], namespaces: Sequence[str]) -> None:
        self._client = client
        self._rights = rights
        self._namespaces = namespaces or ("",)
        self._missing: Sequence[Right] = ()
        self.is_known = False  # whether kube-apiserver was asked, or could not answer

    @property
    def missing(self) -> str | None:
        """Which are missing, in words; None if none is, as far as is known."""
        if not self._missing:
            return None
        named = "; ".join(map(str, self._missing[:_NAMED]))
        parts = ", ".join(dict.fromkeys(f"deploy/{right.part}" for right in self._missing))
        return f"the service account may not {named}: apply the rights from {parts}"

    async def run(self) -> None:
        """Ask until none is missing. A right that is taken away later shows where it is needed."""
        while True:
            try:
                before = self.missing
                self._missing = [right for right in self._rights if not await self._is_granted(right)]
                if self._missing and self.missing != before:
                    log.warning("rights missing", message=self.missing)
                if not self._missing:
                    self.is_known = True
                    return
            except (ClusterError, msgspec.MsgspecError) as error:  # then a rollout does not wait for it
                log.debug("rights not reviewed", **describe_fault(error))
            self.is_known = True
            await asyncio.sleep(RETRY_S)

    async def _is_granted(self, right: Right) -> bool:
        """In any of the namespaces that are served: others have their own faults."""
        for namespace in ("",) if right.namespace else self._namespaces:
            review: dict[str, Any] = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": right.attributes(namespace)},
            }
            answer = await self._client.post(SELF_REVIEWS, msgspec.json.encode(review))
            if msgspec.json.decode(answer, type=ReviewedAccess).status.is_allowed:
                return True
        return False
