"""The user of a request: client certificates, bearer tokens, anonymous, impersonation (A1-A21)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import unquote

from localcluster.apiserver.store import Store
from localcluster.machinery.metadata import Object, new_uid, uid_of
from localcluster.machinery.resources import BY_PLURAL, Resource
from localcluster.machinery.status import unauthorized

ISSUER = "https://kubernetes.default.svc.cluster.local"
API_AUDIENCES = (ISSUER,)
TOKEN_LIFETIME_S = 3600
_EXTRA = "authentication.kubernetes.io/"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A verified identity, or the anonymous one."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def as_json(self) -> Object:
        named = {"username": self.name, "uid": self.uid, "groups": list(self.groups)}
        extra = {key: list(values) for key, values in self.extra.items()}
        return {key: value for key, value in (named | {"extra": extra}).items() if value}


ANONYMOUS = User(name="system:anonymous", groups=(UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """The user with `system:authenticated`, unless a group of that kind is there already (A14)."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


class Authenticator:
    """Turns a connection's certificate and headers into a user; 401 when they are invalid."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = secrets.token_bytes(32)
        self._static: dict[str, User] = {}

    def add_token(self, user: User) -> str:
        """A token for a person, valid until the cluster ends."""
        token = secrets.token_urlsafe(32)
        self._static[token] = user
        return token

    def adopt_tokens(self, other: Authenticator) -> None:
        """Go on accepting the people's tokens and the signing key of another authenticator."""
        self._static, self._key = other._static, other._key

    def identify(self, connection: ssl.SSLObject | None, headers: Mapping[str, str]) -> User:
        if user := _certificate_user(connection):
            return authenticated(user)
        token = bearer_token(headers)
        if token is None:
            return ANONYMOUS
        review = self.review(token, API_AUDIENCES)
        if review is None:
            raise unauthorized()
        return authenticated(review[0])

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]] | None:
        """The token's user and those of `audiences` it is meant for; None when it is not valid for any."""
        if user := self._static.get(token):
            return user, [audience for audience in audiences if audience in API_AUDIENCES]
        claims = self._claims(token)
        if claims is None:
            return None
        matching = [audience for audience in audiences if audience in claims["aud"]]
        user = self._service_account(claims)
        return (user, matching) if matching and user else None

    def issue(self, account: Object, spec: Object) -> tuple[str, float]:
        """A service-account token as TokenRequest makes it, and when it ends (Unix seconds)."""
        now = time.time()
        expires_at = now + int(spec.get("expirationSeconds") or TOKEN_LIFETIME_S)
        meta = account["metadata"]
        bound: Object = {
            "namespace": meta["namespace"],
            "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
        }
        if reference := spec.get("boundObjectRef"):
            entry = self._store.get(BY_PLURAL["pods"], meta["namespace"], reference["name"])
            if reference.get("kind") == "Pod" and entry:
                bound["pod"] = {"name": reference["name"], "uid": uid_of(entry.object)}
                node = entry.object["spec"].get("nodeName")
                node_entry = self._store.get(BY_PLURAL["nodes"], "", node) if node else None
                if node_entry:
                    bound["node"] = {"name": node, "uid": uid_of(node_entry.object)}
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
            "aud": list(spec.get("audiences") or API_AUDIENCES),
            "exp": int(expires_at),
            "iat": int(now),
            "nbf": int(now),
            "jti": new_uid(),
            "kubernetes.io": bound,
        }
        header = {"alg": "HS256", "typ": "JWT"}
        signed = ".".join(_base64url(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{self._sign(signed)}", expires_at

    def _sign(self, text: str) -> str:
        return _base64url(hmac.digest(self._key, text.encode(), "sha256"))

    def _claims(self, token: str) -> dict[str, Any] | None:
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._sign(signed).encode(), signature.encode()):
            return None
        payload = signed.partition(".")[2]
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return claims if claims["nbf"] <= time.time() < claims["exp"] else None

    def _service_account(self, claims: dict[str, Any]) -> User | None:
        """None when the account, or the pod that the token is bound to, was deleted or replaced."""
        bound = claims["kubernetes.io"]
        namespace, account = bound["namespace"], bound["serviceaccount"]
        if not self._is_still_there(BY_PLURAL["serviceaccounts"], namespace, account):
            return None
        extra = {f"{_EXTRA}credential-id": [f"JTI={claims['jti']}"]}
        for kind, resource, scope in (("pod", "pods", namespace), ("node", "nodes", "")):
            if kind not in bound:
                continue
            if not self._is_still_there(BY_PLURAL[resource], scope, bound[kind]):
                return None
            extra[f"{_EXTRA}{kind}-name"] = [bound[kind]["name"]]
            extra[f"{_EXTRA}{kind}-uid"] = [bound[kind]["uid"]]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return User(name=claims["sub"], uid=account["uid"], groups=groups, extra=extra)

    def _is_still_there(self, resource: Resource, namespace: str, reference: Object) -> bool:
        entry = self._store.get(resource, namespace, reference["name"])
        return entry is not None and uid_of(entry.object) == reference["uid"]


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """A15: second space-separated field, scheme in any case; otherwise the WebSocket subprotocol (X9)."""
    fields = headers.get("Authorization", "").strip().split(" ")
    if len(fields) >= 2 and fields[0].lower() == "bearer" and fields[1]:
        return fields[1]
    prefix = "base64url.bearer.authorization.k8s.io."
    for protocol in headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(prefix):
            encoded = protocol.strip()[len(prefix) :]
            return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode(errors="replace")
    return None


def impersonated(headers: Mapping[str, str], groups: Sequence[str]) -> User | None:
    """The user that `kubectl --as` names; whether that is allowed is decided by the caller."""
    name = headers.get("Impersonate-User")
    if not name:
        return None
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith("impersonate-extra-"):
            extra.setdefault(unquote(header.lower().removeprefix("impersonate-extra-")), []).append(value)
    if name == ANONYMOUS.name:
        return replace(ANONYMOUS, groups=tuple(groups) or ANONYMOUS.groups)
    parts = name.split(":")
    if not groups and name.startswith("system:serviceaccount:") and len(parts) == 4:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}")
    return authenticated(
        User(name=name, uid=headers.get("Impersonate-Uid", ""), groups=tuple(groups), extra=extra)
    )


def _certificate_user(connection: ssl.SSLObject | None) -> User | None:
    """A13. The handshake has verified the chain against the client CA, and against nothing else."""
    certificate = connection.getpeercert() if connection else None
    if not connection or not certificate:
        return None
    # typeshed leaves this open; it is a tuple of relative names, each made of (type, value) pairs.
    relative_names = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ()))
    subject = [pair for relative_name in relative_names for pair in relative_name]
    names = [value for kind, value in subject if kind == "commonName"]
    if not names:
        return None
    fingerprint = hashlib.sha256(connection.getpeercert(binary_form=True) or b"").hexdigest()
    return User(
        name=names[0],
        groups=tuple(value for kind, value in subject if kind == "organizationName"),
        extra={f"{_EXTRA}credential-id": [f"X509SHA256={fingerprint}"]},
    )


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
