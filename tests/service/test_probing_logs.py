"""Logs read through a scripted API server; those of real processes: tests/e2e/test_only_logs.py."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from msgspec.structs import replace

from tests.jobs import job_ref, rank0
from tests.service.fake_apiserver import Handler, fake_apiserver
from visibility_api.probing.logs_source import (
    FEW_LINES,
    MANY_LINES,
    MAX_ANSWER_BYTES,
    REMEMBERED_S,
    LogsSource,
)
from visibility_api.reports.document import Outcome, Progress, Refused, RetryClass

DEADLINE_S = 90.0
REF = job_ref(namespace="default")
RANK0 = rank0(pod_name="p", container_name="c")
TIME = "2026-11-21T12:00:00.000000000Z "
SECRET = "hunter2"


async def ask(handler: Handler) -> Outcome:
    """The answer of a source that hears this of the API server."""
    async with fake_apiserver(handler) as client:
        return await LogsSource(client, timeout_s=DEADLINE_S).probe(REF, RANK0)


def refusal(outcome: Outcome) -> tuple[str, RetryClass]:
    assert isinstance(outcome, Refused)
    assert SECRET not in outcome.message
    return outcome.reason, outcome.retry


def progress(outcome: Outcome) -> Progress:
    assert isinstance(outcome, Progress), outcome
    return outcome


async def test_pods_that_are_probed_no_more_are_forgotten() -> None:
    seconds = 0.0

    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"{TIME}step=5/10 loss=0.5\n")

    async with fake_apiserver(handler) as client:
        source = LogsSource(client, timeout_s=DEADLINE_S, clock=lambda: seconds)
        for uid in ("gone", "there"):
            await source.probe(REF, replace(RANK0, pod_uid=uid))
        seconds = REMEMBERED_S - 1
        await source.probe(REF, replace(RANK0, pod_uid="there"))
        assert len(source) == 2
        seconds += 2
        assert len(source) == 1


# What is asked for


async def test_the_end_of_one_containers_log_is_requested_within_bounds() -> None:
    requests: list[web.Request] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        return web.Response(text=f"{TIME}step=5/10 loss=0.5\n")

    assert progress(await ask(handler)).step == 5
    (request,) = requests
    assert request.path == "/api/v1/namespaces/default/pods/p/log"
    assert dict(request.query) == {
        "container": "c",
        "tailLines": str(MANY_LINES),
        "limitBytes": str(MAX_ANSWER_BYTES),
        "timestamps": "true",
    }


@pytest.mark.parametrize("holds_to_its_limit", [True, False])
async def test_a_tail_that_does_not_fit_is_requested_again_with_fewer_lines(holds_to_its_limit: bool) -> None:
    asked: list[int] = []
    records = [b"x" * 16_384] * 300 + [f"{TIME}step=7 loss=0.5\n".encode()]

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(int(request.query["tailLines"]))
        selected = TIME.encode() + b"".join(records[-asked[-1] :])
        return web.Response(body=selected[:MAX_ANSWER_BYTES] if holds_to_its_limit else selected)

    async with fake_apiserver(handler) as client:
        source = LogsSource(client, timeout_s=DEADLINE_S)
        await source.probe(REF, RANK0)
        assert asked == [MANY_LINES, FEW_LINES]
        # It is remembered how much fits, until the lines are short again.
        await source.probe(REF, RANK0)
        assert asked[2:] == [FEW_LINES]
        records[:] = [f"{TIME}step=8 loss=0.5\n".encode()]
        assert progress(await source.probe(REF, RANK0)).step == 8
        await source.probe(REF, RANK0)
        assert asked[3:] == [FEW_LINES, MANY_LINES]


async def test_a_record_without_bounds_is_given_up() -> None:
    asked: list[int] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(int(request.query["tailLines"]))
        return web.Response(body=b"x" * MAX_ANSWER_BYTES)

    assert refusal(await ask(handler)) == ("LogLineTooLong", RetryClass.RARELY)
    assert asked == [MANY_LINES, FEW_LINES, 1]


async def test_a_container_run_is_not_read_with_the_memory_of_the_one_before() -> None:
    texts = [f"{TIME}step=5/10 loss=0.5\n", f"{TIME}acc=0.25\n"]

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(text=texts.pop(0))

    async with fake_apiserver(handler) as client:
        source = LogsSource(client, timeout_s=DEADLINE_S)
        await source.probe(REF, RANK0)
        later = progress(await source.probe(REF, replace(RANK0, restart_count=1)))
    assert (later.step, later.metrics) == (None, (("acc", "0.25"),))


# Refusals


@pytest.mark.parametrize(
    ("status", "reason", "retry"),
    [
        (403, "LogsForbidden", RetryClass.FORBIDDEN),
        (404, "PodGone", RetryClass.SOON),
        (400, "NoLogYet", RetryClass.LATER),
        (429, "PodUnreachable", RetryClass.SOON),
        (500, "PodUnreachable", RetryClass.SOON),
        (502, "PodUnreachable", RetryClass.SOON),
    ],
)
async def test_each_refusal_has_a_reason_and_a_retry_class(
    status: int, reason: str, retry: RetryClass
) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": SECRET}, status=status)

    assert refusal(await ask(handler)) == (reason, retry)


async def test_a_right_that_lacks_is_named() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=403)

    outcome = await ask(handler)
    assert isinstance(outcome, Refused)
    assert "get on pods/log" in outcome.message


@pytest.mark.parametrize("body", [b"", SECRET.encode() * 9, f"{TIME}{SECRET}\n".encode(), b"\xff\x00\n"])
async def test_a_log_that_says_nothing_yet_may_say_something_later(body: bytes) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    assert refusal(await ask(handler)) == ("NoProgressInLog", RetryClass.LATER)


async def test_a_pod_that_waits_for_its_node_has_no_log_yet() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=204)

    assert refusal(await ask(handler)) == ("NoProgressInLog", RetryClass.LATER)


async def test_a_kubelet_that_never_answers_costs_one_timeout() -> None:
    is_over = asyncio.Event()

    async def handler(_: web.Request) -> web.StreamResponse:
        await is_over.wait()
        return web.Response()

    async with fake_apiserver(handler) as client:
        outcome = await LogsSource(client, timeout_s=0.05).probe(REF, RANK0)
        is_over.set()
    assert refusal(outcome) == ("ProbeTimeout", RetryClass.SOON)


async def test_an_answer_that_breaks_off_is_no_log() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(f"{TIME}step=5 loss=0.5\n".encode())
        assert request.transport is not None
        request.transport.close()
        return response

    assert refusal(await ask(handler)) == ("PodUnreachable", RetryClass.SOON)


# The life before


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_final_read_is_of_the_run_that_ended(is_running: bool) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.query.get("previous", ""))
        return web.Response(text=f"{TIME}step=9/10 loss=0.5\n")

    async with fake_apiserver(handler) as client:
        source = LogsSource(client, timeout_s=DEADLINE_S)
        outcome = await source.final_read(REF, replace(RANK0, is_running=is_running, restart_count=1))
    assert progress(outcome).step == 9
    assert asked == ["true" if is_running else ""]


async def test_of_a_run_whose_log_is_gone_there_is_no_final_read() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "previous terminated container not found"}, status=400)

    async with fake_apiserver(handler) as client:
        outcome = await LogsSource(client, timeout_s=DEADLINE_S).final_read(REF, RANK0)
    assert refusal(outcome) == ("NoEarlierLog", RetryClass.LATER)
