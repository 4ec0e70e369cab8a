"""Work on a response ends when its client has gone."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.asgi import http_scope
from tests.reviews import until
from tests.unit.resource_server import ResourceServer
from visibility_api.kubeapi.disconnect import unless_gone

LIST = "/apis/visibility.trainer.kubeflow.org/v1alpha1/trainjobs"


class Client:
    """Leaves when it is told to."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.listened = False
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if not self.listened:
            self.listened = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def test_work_that_needs_no_waiting_is_done_without_listening() -> None:
    client = Client()

    async def work() -> int:
        return 7

    assert await unless_gone(client.receive, work()) == 7
    assert not client.listened


async def test_a_list_whose_client_leaves_is_given_up_and_its_place_is_free() -> None:
    server = ResourceServer()
    for number in range(60):
        server.put(f"job-{number}")
    client = Client()
    scope = http_scope("GET", LIST, [("Accept", "application/yaml")])
    task = asyncio.create_task(server.app(scope, client.receive, client.send))
    await until(lambda: client.listened)
    client.left.set()
    await task
    assert client.sent == []
    sample = server.registry.get_sample_value
    assert sample("apiserver_current_inflight_requests", {"request_kind": "readOnly"}) == 0
    labels = {"verb": "LIST", "resource": "trainjobs", "subresource": "", "code": "499"}
    assert sample("apiserver_request_total", labels) == 1
