"""Credentials and CA for kube-apiserver, reloaded when their files change.

The files are checked before a request, at most every 30 s. Changed TLS files make a new context, and so new
connections: none of the old context is reused, and OpenSSL binds TLS sessions to their context. Requests in
flight end on the connection they have, a watch within ten minutes; client-go closes all connections instead.
The kubeconfig itself, and so what is inline in it, is read once, as in client-go. The token of a credential
plugin is renewed if the plugin says when it expires; a client certificate from a plugin is not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import structlog
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.kube_config import KubeConfigLoader

from .tls import ResumingContext, client_context

log = structlog.get_logger("visibility.cluster")

FILES_INTERVAL_S = 30.0  # between two checks of the files, as for the serving certificate
MAX_TOKEN_BYTES = 64 * 1024


class Credentials:
    """The credentials of `configuration`, with the current content of its files.

    `tls` is the context to connect with; the token is put into the configuration itself. The in-cluster token
    is not handled here: kubernetes_asyncio reads its file every minute.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        tls_files: Sequence[Path] | None = None,
        token_file: Path | None = None,
        plugin: Callable[[], Awaitable[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = FILES_INTERVAL_S,
    ) -> None:
        """Follows `tls_files`, by default all that the configuration names. Raises OSError, ValueError.

        `plugin` is called at every check and returns the value of the Authorization header.
        """
        self._configuration = configuration
        if tls_files is None:
            named = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
            tls_files = [Path(file) for file in named if file]
        self._tls_files = tuple(tls_files)
        self._token_file = token_file
        self._clock = clock
        self._plugin = plugin
        self._running_plugin: asyncio.Task[None] | None = None
        self._logged: dict[str, str] = {}  # the fault that was logged last, by what failed; "": none
        # Read before they are loaded: a change in between is noticed at the next check.
        self._loaded = self._read_tls_files()
        self._interval_s = interval_s
        self.tls: ResumingContext = client_context(configuration)
        self._check_token_file()  # it takes precedence over an inline token, as in client-go
        follows = bool(self._tls_files or token_file or plugin)
        self._next_check = clock() + interval_s if follows else float("inf")

    def refresh(self) -> None:
        """Load what has changed. Files that cannot be used leave the old ones in use; logged once."""
        now = self._clock()
        if now < self._next_check:
            return
        self._next_check = now + self._interval_s
        for what, check in (("TLS files", self._check_tls_files), ("token file", self._check_token_file)):
            try:
                check()
                self._log_fault(what, "")
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                self._log_fault(what, f"{type(error).__name__}: {error}")
        if self._plugin is not None and (self._running_plugin is None or self._running_plugin.done()):
            # No request waits for it, however long it takes: the current token is still valid for a while.
            self._running_plugin = asyncio.create_task(self._run(self._plugin), name="credential plugin")

    async def close(self) -> None:
        """Cancel the plugin if it is running."""
        if self._running_plugin is not None:
            self._running_plugin.cancel()
            await asyncio.wait((self._running_plugin,))

    async def _run(self, plugin: Callable[[], Awaitable[str]]) -> None:
        try:
            self._configuration.api_key["BearerToken"] = await plugin()
            self._log_fault("plugin", "")
        except Exception as error:  # not its message: the output of a plugin may be a credential
            self._log_fault("plugin", f"the plugin failed ({type(error).__name__})")

    def _log_fault(self, what: str, fault: str) -> None:
        if fault and fault != self._logged.get(what):
            log.error("credentials for kube-apiserver not reloaded, the old ones stay in use", error=fault)
        self._logged[what] = fault

    def _check_tls_files(self) -> None:
        found = self._read_tls_files()
        if found == self._loaded:
            return
        self.tls = client_context(self._configuration)
        self._loaded = found
        log.info("credentials for kube-apiserver reloaded", files=[str(file) for file in self._tls_files])

    def _check_token_file(self) -> None:
        if self._token_file is None:
            return
        with self._token_file.open(encoding="ascii") as file:
            token = file.read(MAX_TOKEN_BYTES).strip()
        if not token:
            raise ValueError(f"{self._token_file} is empty")
        self._configuration.api_key["BearerToken"] = f"Bearer {token}"

    def _read_tls_files(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() for file in self._tls_files)


def credentials_of(
    loader: KubeConfigLoader, configuration: Configuration, *, interval_s: float = FILES_INTERVAL_S
) -> Credentials:
    """Credentials of the kubeconfig that `loader` put into `configuration`. Raises OSError, ValueError."""
    # There is no public way to what it names. The loader writes inline data to files; those do not change.
    cluster: Any = loader._cluster
    user: Any = loader._user or {}  # both as they are in YAML
    named = (
        (cluster, "certificate-authority", configuration.ssl_ca_cert),
        (user, "client-certificate", configuration.cert_file),
        (user, "client-key", configuration.key_file),
    )
    tls_files = [
        Path(file)
        for section, name, file in named
        if file and name in section and f"{name}-data" not in section
    ]
    token_file = None
    if (
        "tokenFile" in user and "exec" not in user and "auth-provider" not in user
    ):  # in the loader's order of precedence
        token_file = Path(user.path).parent / user["tokenFile"]

    async def plugin() -> str:
        await loader.load_from_exec_plugin()  # runs it only in the last five minutes of its token
        return loader.token

    expires = "exec" in user and hasattr(loader, "exec_plugin_expiry")
    return Credentials(
        configuration,
        tls_files=tls_files,
        token_file=token_file,
        plugin=plugin if expires else None,
        interval_s=interval_s,
    )
