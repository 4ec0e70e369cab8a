"""A sink that pushes, in Kubeflow Trainer's protocol (docs/push.md)."""

from __future__ import annotations

import encodings.idna  # noqa: F401 — what a name is looked up with, else imported by the thread that pushes
import http.client
import json
import os
import ssl
import time
from typing import Any, Mapping, Optional
from urllib.parse import urlsplit

from trainjob_progress.document import MAX_BYTES, MAX_METRICS, Snapshot, format_time

URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
CA_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # a path, not the token

INTERVAL_S = 5.0  # what upstream's clients do; its server takes 5 requests a second from everyone together
MAX_INTERVAL_S = 60.0
TIMEOUT_S = 5.0
MAX_INT32 = 2**31 - 1
MAX_TOKEN_BYTES = 64 * 1024
LAST_S = 3.0  # how long the end of the process waits for the last push, and that is tried again
RETRY_S = 0.5  # until then, where the server does not say


class PushSink:
    """Posts each document to the URL that the operator injected, with the pod's own token.

    Asks half as often after each failure, down to once a minute; a last document soon again. A redirect is a
    failure: the token is for one server.
    """

    reopens = True
    last_s = LAST_S

    def __init__(
        self, url: str, ca_path: Optional[str], token_path: str, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """`timeout_s`: of connecting, and of each wait for the server."""
        self.interval_s = INTERVAL_S
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{URL_VARIABLE} must be an https URL: the token would travel in the clear")
        self._host, self._port = parts.hostname, parts.port or 443
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._ca_path = ca_path
        self._token_path = token_path
        self._timeout_s = timeout_s

    def write(self, snapshot: Snapshot) -> None:
        body = encode_trainer_status(snapshot)
        was_there = self.interval_s == INTERVAL_S
        deadline_s = time.monotonic() + (LAST_S if snapshot.ending is not None else 0)
        while True:
            try:
                self._post(body)
                break
            except BaseException as error:
                after_s = find_retry_s(error, was_there=was_there)
                if after_s is None or time.monotonic() + after_s >= deadline_s:
                    self.interval_s = min(max(2 * self.interval_s, after_s or 0), MAX_INTERVAL_S)
                    raise
            time.sleep(after_s)
        self.interval_s = INTERVAL_S

    def close(self) -> None:
        pass

    def _post(self, body: bytes) -> None:
        # The files are read anew each time: the kubelet renews the token before it expires.
        with open(self._token_path, "rb") as file:
            token = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
        has_ca = self._ca_path is not None and os.path.exists(self._ca_path)
        context = ssl.create_default_context(cafile=self._ca_path if has_ca else None)
        # http.client and not urllib: a service of the cluster is not behind the proxy that urllib would take.
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=context
        )
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", self._target, body, headers)
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                raise Refused(response.status, response.getheader("Retry-After", ""))
        finally:
            connection.close()


class Refused(OSError):
    """The server's answer is no success."""

    def __init__(self, status: int, retry_after: str) -> None:
        super().__init__(f"the server answered {status}")
        self.retry_s: Optional[float] = None  # None: it would answer the same again
        if status == 429 or status >= 500:
            self.retry_s = float(retry_after) if retry_after.isdecimal() else RETRY_S


def find_retry_s(error: BaseException, *, was_there: bool) -> Optional[float]:
    """After how long the same push may be tried again; None if it would fail again."""
    if isinstance(error, Refused):
        return error.retry_s
    is_away = isinstance(error, (ConnectionError, http.client.HTTPException))
    return RETRY_S if is_away and was_there else None


def find_push_sink(environ: Mapping[str, str]) -> Optional[PushSink]:
    """The sink that upstream's variables describe; None unless both the URL and the token are named."""
    url, token_path = environ.get(URL_VARIABLE), environ.get(TOKEN_VARIABLE)
    return PushSink(url, environ.get(CA_VARIABLE), token_path) if url and token_path else None


def encode_trainer_status(snapshot: Snapshot) -> bytes:
    """What upstream takes. Steps and epochs have no field there: they go as metrics, like Hugging Face's."""
    metrics: dict[str, Any] = {
        "current_step": snapshot.step,
        "total_steps": snapshot.total_steps,
        "current_epoch": snapshot.epoch,
        "total_epochs": snapshot.total_epochs,
        **snapshot.metrics,
    }
    pairs = [{"name": name, "value": str(value)[:64]} for name, value in metrics.items() if value is not None]
    status: dict[str, Any] = {
        "lastUpdatedTime": format_time(snapshot.timestamp),
        "metrics": pairs[:MAX_METRICS],
    }
    if snapshot.percentage is not None:
        status["progressPercentage"] = snapshot.percentage
    if snapshot.remaining_s is not None:
        status["estimatedRemainingSeconds"] = min(snapshot.remaining_s, MAX_INT32)
    while True:
        text = json.dumps({"trainerStatus": status}, ensure_ascii=False, separators=(",", ":"))
        body = text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8 form
        if len(body) <= MAX_BYTES or not pairs:
            return body
        status["metrics"] = pairs = pairs[: len(pairs) * 3 // 4]
