"""Who the user is: a token, a certificate, or what a credential plugin prints, renewed when it has ended.

Reference: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

from . import kubeconfig
from .errors import ConfigError

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_TOKEN_FILE_S = 60.0  # a kubelet rotates tokens long before they end; client-go reads the file as often
_SPARE_S = 10.0  # an id-token that ends so soon has ended, as in client-go


@dataclass(frozen=True)
class Credentials:
    """What a request is sent with."""

    authorization: Optional[str] = None
    certificate: Optional[Tuple[bytes, bytes]] = None  # PEM: chain, key
    until: Optional[float] = None  # seconds since 1970


class CredentialSource:
    """The credentials of one user of a kubeconfig. `current` may run a plugin, so it may block."""

    def __init__(self, context: kubeconfig.Context, now: Callable[[], float] = time.time) -> None:
        self._context = context
        self._now = now
        self._held: Optional[Credentials] = None
        self.renewals = 0

    @property
    def is_due(self) -> bool:
        """Whether `current` reads or runs anything."""
        held = self._held
        return held is None or (held.until is not None and self._now() >= held.until)

    @property
    def can_renew(self) -> bool:
        """Whether others may come after a 401."""
        return any(key in self._context.user for key in ("exec", "tokenFile", "auth-provider"))

    def renew(self, renewals: int) -> None:
        """The server refuses those that were made after so many: `current` makes others, unless it has."""
        if renewals == self.renewals:
            self._held, self.renewals = None, renewals + 1

    def current(self) -> Credentials:
        """Raises ConfigError."""
        if self._held is None or self.is_due:
            self._held = self._make()
        return self._held

    def _make(self) -> Credentials:
        user = self._context.user
        if not str(self._context.cluster.get("server")).lower().startswith("https://"):
            return Credentials()  # client-go sends none in plain text either
        certificate = _certificate(user)
        if user.get("token") and not user.get("tokenFile"):
            return Credentials(_bearer(str(user["token"]), "The token of the kubeconfig"), certificate)
        if user.get("tokenFile"):
            text = _read(user["tokenFile"]).decode(errors="replace")
            bearer = _bearer(text, f"The token in {user['tokenFile']}")
            return Credentials(bearer, certificate, self._now() + _TOKEN_FILE_S)
        if user.get("username"):
            pair = f"{user['username']}:{user.get('password', '')}".encode()
            return Credentials("Basic " + base64.b64encode(pair).decode(), certificate)
        if user.get("exec"):
            return _run_plugin(user["exec"], self._context)
        if user.get("auth-provider"):
            return self._of_provider(user["auth-provider"], certificate)
        return Credentials(None, certificate)

    def _of_provider(
        self, provider: Dict[str, Any], certificate: Optional[Tuple[bytes, bytes]]
    ) -> Credentials:
        """An OIDC id-token. One that has ended kubectl renews: it also keeps the new refresh token."""
        if provider.get("name") != "oidc":
            raise ConfigError(
                f"The auth-provider {provider.get('name')!r} is not known; kubectl has oidc alone."
            )
        config = provider.get("config") or {}
        token, until = config.get("id-token") or "", None
        if token:
            until = _end_of(token)
        if not token or (until is not None and until - _SPARE_S <= self._now()):
            token = self._renew_by_kubectl()
            until = _end_of(token)
        bearer = _bearer(token, "The id-token of the kubeconfig")
        return Credentials(bearer, certificate, until and until - _SPARE_S)

    def _renew_by_kubectl(self) -> str:
        kubectl = shutil.which("kubectl")
        files = [str(each) for each in self._context.files]
        if kubectl is not None and files:
            env = {**os.environ, "KUBECONFIG": os.pathsep.join(files)}
            who = ["--context", self._context.name, "--user", self._context.user_name]
            asked = [kubectl, *who, "get", "--raw", "/version"]
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                subprocess.run(asked, env=env, capture_output=True, check=False, timeout=60)  # noqa: S603
            config = (kubeconfig.user_of(self._context).get("auth-provider") or {}).get("config") or {}
            token = str(config.get("id-token") or "")
            if token and (_end_of(token) or 0) - _SPARE_S > self._now():
                return token
        raise ConfigError(
            "The id-token of the kubeconfig has ended, and kubectl has not renewed it: log in anew."
        )


def _run_plugin(plugin: Dict[str, Any], context: kubeconfig.Context) -> Credentials:
    version, command = plugin.get("apiVersion"), str(plugin.get("command") or "")
    if version not in _EXEC_VERSIONS:
        raise ConfigError(
            f"Credential plugins of version {version!r} are not known; known: {_EXEC_VERSIONS}."
        )
    if os.sep in command and not os.path.isabs(command):
        command = os.path.join(plugin["_directory"], command)
    mode = plugin.get("interactiveMode") or "IfAvailable"
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not has_terminal:
        raise ConfigError(f"The credential plugin {command} needs a terminal.")
    is_interactive = mode != "Never" and has_terminal
    spec: Dict[str, Any] = {"interactive": is_interactive}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(context.cluster)
    told = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    env = {**os.environ, **{each["name"]: each["value"] for each in plugin.get("env") or ()}}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(told)
    try:
        ran = subprocess.run(  # noqa: S603
            [command, *(plugin.get("args") or ())],
            env=env,
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # its stderr is the user's
            check=False,
        )
    except OSError as error:
        hint = str(plugin.get("installHint") or "").strip()
        raise ConfigError(
            f"The credential plugin {command} cannot be run: {error.strerror}. {hint}".strip()
        ) from error
    if ran.returncode:
        raise ConfigError(f"The credential plugin {command} ended with exit code {ran.returncode}.")
    try:
        status = json.loads(ran.stdout)["status"]
        chain, key = status.get("clientCertificateData"), status.get("clientKeyData")
        token, end = status.get("token"), status.get("expirationTimestamp")
        until = datetime.fromisoformat(end.replace("Z", "+00:00")).timestamp() if end else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"What the credential plugin {command} printed is no ExecCredential.") from error
    if not token and not (chain and key):
        raise ConfigError(f"The credential plugin {command} printed neither a token nor a certificate.")
    pair = (chain.encode(), key.encode()) if chain and key else None
    bearer = _bearer(str(token), f"The token of the credential plugin {command}") if token else None
    return Credentials(bearer, pair, until)


def _bearer(token: str, what: str) -> str:
    """The header's value. An error says nothing of the token, for errors are printed and logged."""
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{what} has characters that no token has.")
    return f"Bearer {token}"


def _cluster_info(cluster: Dict[str, Any]) -> Dict[str, Any]:
    """The cluster as a plugin is told of it: files are read for it."""
    told: Dict[str, Any] = {"server": cluster["server"]}
    for key, name in (
        ("tls-server-name", "tls-server-name"),
        ("insecure-skip-tls-verify", "insecure-skip-tls-verify"),
        ("proxy-url", "proxy-url"),
    ):
        if cluster.get(key):
            told[name] = cluster[key]
    if ca := authority(cluster):
        told["certificate-authority-data"] = base64.b64encode(ca).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def authority(cluster: Dict[str, Any]) -> Optional[bytes]:
    """The CA certificates of the cluster as PEM; None: those of the system."""
    if cluster.get("certificate-authority-data"):
        return _decode(cluster["certificate-authority-data"], "certificate-authority-data")
    return _read(cluster["certificate-authority"]) if cluster.get("certificate-authority") else None


def _certificate(user: Dict[str, Any]) -> Optional[Tuple[bytes, bytes]]:
    parts = []
    for name in ("client-certificate", "client-key"):
        if user.get(f"{name}-data"):
            parts.append(_decode(user[f"{name}-data"], f"{name}-data"))
        elif user.get(name):
            parts.append(_read(user[name]))
    if len(parts) == 1:
        raise ConfigError(
            "The user of the kubeconfig has a client certificate without a key, or the other way."
        )
    return (parts[0], parts[1]) if parts else None


def _end_of(token: str) -> Optional[float]:
    """When a JWT ends, unverified: the server verifies it."""
    try:
        claims = token.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))).get("exp")
        return float(end) if end is not None else None
    except (IndexError, ValueError, TypeError, AttributeError):
        return None


def _decode(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except ValueError as error:
        raise ConfigError(f"{name} of the kubeconfig is no base64.") from error


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}, which the kubeconfig names, cannot be read: {error.strerror}.") from error
