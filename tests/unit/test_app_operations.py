"""What a typed operation may rely on: errors, time, bodies, discovery, and paths that are its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import pytest
from fastapi import Query
from pydantic import BaseModel

from tests.pushing import OURS, UPSTREAM, Cluster, Endpoint
from tests.unit.api_shell import BASE, ONE, Shell
from visibility_api.auth.errors import ReviewFailed
from visibility_api.errors.status import Unavailable
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.models.served import Subresource

NOTES = Subresource(name="notes", kind="TrainJobProgress", is_operation=True)


def shell_with(operation: Any, path: str = "/things", methods: tuple[str, ...] = ("GET",)) -> Shell:
    shell = Shell()
    shell.app.add_api_route(path, operation, methods=list(methods))
    return shell


@pytest.mark.parametrize(
    ("error", "code", "reason", "message"),
    [
        (Unavailable("not yet"), 503, "ServiceUnavailable", "not yet"),
        (TimeoutError(), 504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
    ],
)
async def test_what_an_operation_raises_is_a_status(
    error: Exception, code: int, reason: str, message: str
) -> None:
    async def operation() -> None:
        raise error

    answer = await shell_with(operation).get("/things")
    status = answer.json()
    assert (answer.status, status["code"], status["reason"], status["message"]) == (
        code,
        code,
        reason,
        message,
    )


async def test_an_error_of_auth_in_an_operation_is_not_logged_as_a_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def operation() -> None:
        raise ReviewFailed("connection refused")

    assert (await shell_with(operation).get("/things")).status == 500
    assert "request failed" not in "".join(capsys.readouterr())


async def test_a_fault_in_an_operation_is_logged_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    async def operation() -> None:
        raise KeyError("s3cr3t")

    answer = await shell_with(operation).get("/things")
    logged = "".join(capsys.readouterr())
    assert (answer.status, answer.json()["reason"]) == (500, "InternalError")
    assert "request failed" in logged
    assert "s3cr3t" not in logged + answer.text


async def test_a_parameter_that_does_not_fit_is_named_and_cut() -> None:
    async def operation(points: Annotated[int, Query(ge=1, le=9)]) -> int:
        return points

    answer = await shell_with(operation).get("/things?points=" + "x" * 65)
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")
    shown = "x" * 64
    assert answer.json()["message"] == f'points must be a whole number from 1 to 9, not "{shown}"'


class Note(BaseModel):
    text: str


async def test_a_body_is_bounded() -> None:
    async def operation(note: Note) -> Note:
        return note

    headers = (("Content-Type", "application/json"), ("Content-Length", str(10**6)))
    answer = await shell_with(operation, methods=("POST",)).get("/things", *headers, method="POST")
    assert answer.status == 413


@pytest.mark.parametrize("path", ["/metrics%0A", f"{BASE}%0A", "/livez%0A"])
async def test_a_control_character_leads_nowhere(path: str) -> None:
    assert (await Shell().get(path)).status == 404


@pytest.mark.parametrize("path", [UPSTREAM + "/", "/" + UPSTREAM, OURS + "/"])
async def test_another_spelling_of_a_pushs_path_is_not_served(path: str) -> None:
    """A push authenticates by its token alone, so it has one path: no other leads to it."""
    cluster = Cluster()
    cluster.add_job("bert")
    endpoint = Endpoint(cluster)
    shell = Shell(pushes=endpoint.pushes)
    token = ("Authorization", "Bearer team-a-bert-job-pod0")
    answer = await shell.get(path.format("team-a", "bert"), token, method="POST")
    assert (answer.status, endpoint.seen, endpoint.outcomes) == (404, [], [])
    assert len(shell.asked) == 1


async def test_a_subresource_of_its_own_operation_is_discovered_and_waits_for_the_jobs() -> None:
    shell = Shell(
        resources=(replace(TrainJobKind.served, subresources=(*TrainJobKind.served.subresources, NOTES)),)
    )

    async def notes(name: str) -> str:
        return name

    shell.app.add_api_route(
        f"{BASE}/namespaces/{{namespace}}/trainjobs/{{name}}/notes", notes, methods=["GET"]
    )
    listed = (await shell.get(BASE)).json()["resources"]
    assert "trainjobs/notes" in [resource["name"] for resource in listed]
    answer = await shell.get(f"{ONE}/notes")
    assert (answer.status, answer.json()) == (200, "bert")
    assert shell.asked[-1].subresource == "notes"
    shell.is_synced = False
    assert (await shell.get(f"{ONE}/notes")).status == 503
