"""The requests by which a status is written, and what follows from the responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.jobs import job_ref, reported
from tests.service.fake_apiserver import fake_apiserver
from tests.service.tls_server import DEADLINE_S
from visibility_api.writeback.writer import WriteBack


def written(uid: str = job_ref().uid) -> web.Response:
    return web.json_response({"kind": "PartialObjectMetadata", "metadata": {"name": "bert", "uid": uid}})


def refused(code: int, reason: str, message: str = "", **headers: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers={k.replace("_", "-"): v for k, v in headers.items()})


class Bench:
    def __init__(self, answers: list[web.Response]) -> None:
        self.answers = answers
        self.requests: list[tuple[web.Request, Any]] = []
        self.outcomes: asyncio.Queue[str] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request, await request.json()))
        return self.answers.pop(0) if self.answers else written()

    async def outcome(self) -> str:
        async with asyncio.timeout(DEADLINE_S):
            return await self.outcomes.get()


@asynccontextmanager
async def writing(*answers: web.Response) -> AsyncIterator[tuple[Bench, WriteBack]]:
    bench = Bench(list(answers))
    async with fake_apiserver(bench.answer) as client:
        write_back = WriteBack(client, count=bench.outcomes.put_nowait)
        task = asyncio.create_task(write_back.run())
        try:
            yield bench, write_back
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_status_is_written_by_an_unforced_apply_to_the_status_subresource() -> None:
    async with writing() as (bench, write_back):
        write_back.changed(reported(120))
        assert await bench.outcome() == "Written"
        ((request, body),) = bench.requests
        assert request.method == "PATCH"
        assert request.path == ("/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs/bert/status")
        assert dict(request.query) == {"fieldManager": "trainjob-visibility", "force": "false"}
        assert request.headers["Content-Type"] == "application/apply-patch+yaml"
        assert request.headers["Accept"].startswith("application/json;as=PartialObjectMetadata;")
        assert body == {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"namespace": "team-a", "name": "bert"},
            "status": {
                "trainerStatus": {
                    "progressPercentage": 12,
                    "metrics": [
                        {"name": "current_step", "value": "120"},
                        {"name": "total_steps", "value": "1000"},
                    ],
                    "lastUpdatedTime": "2026-01-23T10:02:00Z",
                }
            },
        }


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (lambda: refused(403, "Forbidden", "cannot patch"), "Forbidden"),
        (lambda: refused(404, "NotFound", "not found"), "Gone"),
        (lambda: web.Response(status=404, text="404 page not found"), "Gone"),  # the CRD is not there
        (lambda: refused(422, "Invalid", "is invalid"), "Invalid"),
        (lambda: refused(409, "Conflict", "the object has been modified"), "Busy"),
        (lambda: refused(429, "TooManyRequests", Retry_After="1"), "Busy"),
        (lambda: refused(503, "ServiceUnavailable"), "Busy"),
        (lambda: refused(500, "", "failed to create typed patch object"), "Failed"),
        (lambda: web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"}), "Failed"),
        (lambda: web.Response(text="<html>"), "Failed"),
        (lambda: web.Response(text='{"metadata": {"uid": 7}}'), "Failed"),
    ],
)
async def test_every_answer_has_one_word(answer: Callable[[], web.Response], outcome: str) -> None:
    async with writing(answer()) as (bench, write_back):
        write_back.changed(reported(120))
        assert await bench.outcome() == outcome
        assert len(bench.requests) == 1
