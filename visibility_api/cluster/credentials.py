"""What we show kube-apiserver, and whom we take for it: files that are replaced while we run.

They are looked at when something is to be asked, at most every 30 s. Changed TLS files make a new context,
and so new connections: none of an old context is used again, and OpenSSL binds sessions to their context.
What is under way ends on the connection it has, a watch within ten minutes; client-go cuts them all.
A kubeconfig itself, and with it what is inline, is read once, as by client-go. A plugin's token is followed,
if it says when it expires; its client certificate is not.
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

FILES_INTERVAL_S = 30.0  # between two looks at the files, as those of the serving certificate
MAX_TOKEN_BYTES = 64 * 1024


class Credentials:
    """Those of `configuration`, as its files are now: TLS files here, the token in the configuration itself.

    The in-cluster token is not among them: kubernetes_asyncio reads it anew every minute.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        tls_files: Sequence[Path] | None = None,
        token_file: Path | None = None,
        plugin: Callable[[], Awaitable[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Follows `tls_files`, or all that the configuration names. Raises OSError, ValueError.

        `plugin` is asked for the `Authorization` to show, at every look.
        """
        self._configuration = configuration
        if tls_files is None:
            named = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
            tls_files = [Path(file) for file in named if file]
        self._tls_files = tuple(tls_files)
        self._token_file = token_file
        self._clock = clock
        self._plugin = plugin
        self._asking: asyncio.Task[None] | None = None
        self._faults: dict[str, str] = {}  # told of; by what is not well
        # Read before they are loaded: what changes in between is found at the next look.
        self._loaded = self._read_tls_files()
        self.tls: ResumingContext = client_context(configuration)
        self._look_at_token_file()  # where a token is inline as well, the file's counts, as in client-go
        follows = bool(self._tls_files or token_file or plugin)
        self._next_look = clock() + FILES_INTERVAL_S if follows else float("inf")

    def look(self) -> None:
        """Take over what has changed. What is of no use leaves the old in force; that is logged once."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + FILES_INTERVAL_S
        for what, look in (("TLS files", self._look_at_tls_files), ("token file", self._look_at_token_file)):
            try:
                look()
                self._tell(what, "")
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                self._tell(what, f"{type(error).__name__}: {error}")
        if self._plugin is not None and (self._asking is None or self._asking.done()):
            # Nothing waits for it, however long it takes: the token is good for a while yet.
            self._asking = asyncio.create_task(self._ask(self._plugin), name="credential plugin")

    async def close(self) -> None:
        """Ask no plugin any more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))

    async def _ask(self, plugin: Callable[[], Awaitable[str]]) -> None:
        try:
            self._configuration.api_key["BearerToken"] = await plugin()
            self._tell("plugin", "")
        except Exception as error:  # whatever it prints; and that may be a credential
            self._tell("plugin", f"the plugin failed ({type(error).__name__})")

    def _tell(self, what: str, fault: str) -> None:
        if fault and fault != self._faults.get(what):
            log.error("credentials for kube-apiserver not reloaded, the old stay in use", error=fault)
        self._faults[what] = fault

    def _look_at_tls_files(self) -> None:
        found = self._read_tls_files()
        if found == self._loaded:
            return
        self.tls = client_context(self._configuration)
        self._loaded = found
        log.info("credentials for kube-apiserver reloaded", files=[str(file) for file in self._tls_files])

    def _look_at_token_file(self) -> None:
        if self._token_file is None:
            return
        with self._token_file.open(encoding="ascii") as file:
            token = file.read(MAX_TOKEN_BYTES).strip()
        if not token:
            raise ValueError(f"{self._token_file} is empty")
        self._configuration.api_key["BearerToken"] = f"Bearer {token}"

    def _read_tls_files(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() for file in self._tls_files)


def credentials_of(loader: KubeConfigLoader, configuration: Configuration) -> Credentials:
    """Those of the kubeconfig that `loader` has put into `configuration`. Raises OSError, ValueError."""
    # There is no public way to what it names. The loader makes files of what is inline: those are left alone.
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
    if "tokenFile" in user and "exec" not in user and "auth-provider" not in user:  # in the loader's order
        token_file = Path(user.path).parent / user["tokenFile"]

    async def plugin() -> str:
        await loader.load_from_exec_plugin()  # runs it in the last five minutes of its token only
        return loader.token

    expires = "exec" in user and hasattr(loader, "exec_plugin_expiry")
    return Credentials(
        configuration, tls_files=tls_files, token_file=token_file, plugin=plugin if expires else None
    )
