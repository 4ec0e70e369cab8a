"""What the commands ask the API, as plain JSON."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from trainjob_client import kubeconfig
from trainjob_client.connection import Connection
from trainjob_client.deadline import within
from trainjob_client.errors import ClientError, ConfigError, NotFoundError
from trainjob_client.requests import (
    ALL_KINDS,
    PREFIX,
    RECORDS,
    Answer,
    Call,
    find_resource,
    path_of,
    selection,
    send,
)
from trainjob_client.sending import Sender
from trainjob_client.words import FAULTS

from .direct import Direct

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_USER_KEYS = {
    "token": "token",
    "as_user": "as",
    "as_uid": "as-uid",
    "client_certificate": "client-certificate",
    "client_key": "client-key",
}
_CLUSTER_KEYS = {
    "server": "server",
    "certificate_authority": "certificate-authority",
    "tls_server_name": "tls-server-name",
    "insecure_skip_tls_verify": "insecure-skip-tls-verify",
}


class UsageError(ClientError):
    """What was typed means nothing here."""


@dataclass(frozen=True)
class Place:
    """A job: the resource of its kind, its namespace and its name."""

    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return self.name if self.resource == "trainjobs" else f"{self.resource}.{self.name}"


@dataclass
class Api:
    """The cluster and the user that the flags name: kubectl's own flags, with its own meaning."""

    flags: Dict[str, Any]
    end: Optional[float] = None  # of time.monotonic: what is asked then raises TimeoutError
    _session: Optional[Sender] = None
    _discovered: List[Dict[str, Any]] = field(default_factory=list)

    @property
    def session(self) -> Sender:
        if self._session is None:
            flags = self.flags
            named: Dict[str, Any] = {name: flags.get(name) for name in ("context", "cluster", "user")}
            try:
                found = kubeconfig.load(config_file=flags.get("kubeconfig"), **named)
            except ConfigError:
                if not flags.get("server") or flags.get("kubeconfig") or any(named.values()):
                    raise
                found = kubeconfig.Context({})  # --server alone will do
            user, cluster = dict(found.user), dict(found.cluster)
            cluster.update({key: flags[name] for name, key in _CLUSTER_KEYS.items() if flags.get(name)})
            user.update({key: flags[name] for name, key in _USER_KEYS.items() if flags.get(name)})
            if flags.get("as_group"):
                user["as-groups"] = list(flags["as_group"])
            if flags.get("token"):
                for other in ("tokenFile", "exec", "auth-provider", "username"):
                    user.pop(other, None)
            if flags.get("certificate_authority"):
                cluster.pop("certificate-authority-data", None)
            found = replace(found, cluster=cluster, user=user)
            connection = Connection(found, timeout_s=flags.get("request_timeout") or None)
            if connection.proxy is None:
                self._session = Direct(connection)
            else:
                # httpx loads click, rich and Pygments for a command of its own, where they are.
                sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
                from trainjob_client.session import Session

                self._session = Session(connection)
        return self._session

    @property
    def namespace(self) -> str:
        return str(self.flags.get("namespace") or self.session.connection.context.namespace)

    def answer(
        self, path: str, parameters: Sequence[Tuple[str, str]] = (), accept: str = "application/json"
    ) -> Answer:
        """Raises ClientError."""
        flow = send(Call(path, parameters, accept))
        return self.session.run(flow if self.end is None else within(flow, self.end))

    def read(self, path: str, parameters: Sequence[Tuple[str, str]] = ()) -> Any:
        """JSON. Raises ClientError."""
        return self.answer(path, parameters).json()

    def plural(self, kind: Optional[str]) -> str:
        """The resource of a kind; without one that of all kinds."""
        if kind in (None, "", ALL_KINDS, "tjs", "trainingjob"):
            return ALL_KINDS
        if kind in (RECORDS, "jobrecord", "jrec"):
            return RECORDS
        if kind in ("trainjob", "trainjobs", "tjp"):
            return "trainjobs"
        if not self._discovered:
            self._discovered = self.read(PREFIX)["resources"]
        try:
            return find_resource(str(kind), self._discovered)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def list_path(self) -> str:
        """Of the kind and namespaces that the flags name."""
        namespace = None if self.flags.get("all_namespaces") else self.namespace
        return path_of(self.plural(self.flags.get("kind")), namespace)

    def selection(self) -> List[Tuple[str, str]]:
        return selection(self.flags.get("selector"), self.flags.get("field_selector"))

    def find(self, word: str) -> Tuple[Place, Dict[str, Any]]:
        """The job that a word means: NAME, KIND/NAME, or RESOURCE.NAME as lists of all kinds have it."""
        kind, slash, name = word.partition("/")
        if slash:
            return self.get(Place(self.plural(kind), self.namespace, name))
        if self.flags.get("kind"):
            return self.get(Place(self.plural(self.flags["kind"]), self.namespace, word))
        try:
            return self.get(Place("trainjobs", self.namespace, word))
        except NotFoundError as missing:
            items = self.read(path_of(ALL_KINDS, self.namespace))["items"]
            found = [
                Place(each["jobRef"]["resource"], self.namespace, each["jobRef"]["name"])
                for each in items
                if word in (each["jobRef"]["name"], each["metadata"]["name"])
            ]
            if len(found) > 1:
                names = ", ".join(f"{each.resource}/{each.name}" for each in found)
                raise UsageError(f"{word} is the name of several jobs; say which one: {names}") from missing
            if not found:
                raise
            return self.get(found[0])

    def get(self, place: Place) -> Tuple[Place, Dict[str, Any]]:
        """Of a record the last document that there was of its job."""
        document: Dict[str, Any] = self.read(path_of(place.resource, place.namespace, place.name))
        if place.resource == RECORDS:
            document["status"] = document["progress"]
        return place, document

    def below(self, place: Place, subresource: str) -> str:
        """The path of a job's history or log-tail."""
        return path_of(place.resource, place.namespace, place.name, subresource)


def dig(document: Any, *keys: str) -> Any:
    """A field of a field; None where there is none."""
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def metrics_of(document: Dict[str, Any]) -> Dict[str, str]:
    return {each["name"]: each["value"] for each in dig(document, "status", "metrics") or ()}


def faults_of(document: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The conditions that somebody has to look at."""
    conditions = dig(document, "status", "conditions") or ()
    return [each for each in conditions if FAULTS.get(each["type"]) == each["status"]]
