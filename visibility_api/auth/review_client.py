"""Posts reviews to kube-apiserver, with the Go library's time limit, retries and metrics.

See `k8s.io/apiserver/pkg/util/webhook/webhook.go` and
`k8s.io/apiserver/pkg/server/options/authentication.go`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, Unreachable

TIMEOUT_S = 10.0  # for one call
ATTEMPTS = 5
FIRST_DELAY_S, DELAY_FACTOR, JITTER = 0.5, 1.5, 0.2
LONGEST_DELAY_S = 10.0  # a longer Retry-After is cut to this: a request is waiting


# Called once per call: the HTTP status as text or "<error>".
Count = Callable[[str], None]


class ReviewClient:
    """Posts reviews of one kind; `count` feeds apiserver_delegated_auth{n,z}_request_total."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        count: Count = lambda _code: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._path = path
        self._count = count
        self._sleep = sleep

    async def post(self, body: bytes) -> bytes:
        """The response's body. Raises ApiError or Unreachable when the last attempt has failed."""
        delay_s = FIRST_DELAY_S
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._post_once(body)
            except ApiError as error:
                if not error.is_retryable:
                    raise
                wait_s = max(delay_s, error.retry_after_s or 0.0)
            except Unreachable as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise  # another full time-out would outlast the request
                wait_s = delay_s
            await self._sleep(min(wait_s * random.uniform(1, 1 + JITTER), LONGEST_DELAY_S))
            delay_s *= DELAY_FACTOR
        return await self._post_once(body)

    async def _post_once(self, body: bytes) -> bytes:
        code = "<error>"
        try:
            body_of_response = await self._client.post(self._path, body, timeout_s=TIMEOUT_S)
            code = "201"
            return body_of_response
        except ApiError as error:
            code = str(error.status)
            raise
        finally:
            self._count(code)
