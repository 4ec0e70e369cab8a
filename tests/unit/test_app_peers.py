"""The state of the jobs is given to replicas of this server, whatever rights anybody else has."""

from __future__ import annotations

import pytest

from tests.unit.api_shell import Shell
from visibility_api.auth.certificates import PEER, Peer
from visibility_api.auth.errors import Unauthenticated
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.saved import SavedJob
from visibility_api.peers.frames import FrameReader
from visibility_api.peers.giving import HISTORY_PATH, PATH, StateGiver

REF = JobRef(resource="trainjobs", namespace="team-a", name="bert", uid="uid-1")
SAVED = SavedJob(ref=REF, format=1, state=b"state")
PAST = SavedJob(ref=REF, format=1, state=b"past")
PROOF = "0123abcd" * 8


def giver() -> StateGiver:
    return StateGiver(
        proof=lambda: PROOF, jobs=lambda: [REF], snapshot=lambda _ref: SAVED, history=lambda _ref: PAST
    )


async def test_a_replica_is_given_every_job_without_being_a_user() -> None:
    shell = Shell(peers=giver(), identity=Unauthenticated("nobody may do anything"))
    for path, given in ((PATH, SAVED), (HISTORY_PATH, PAST)):
        answer = await shell.get(path, ("X-Visibility-Peer", PROOF))
        assert (answer.status, answer.header("content-type")) == (200, "application/octet-stream")
        assert list(FrameReader().feed(answer.body)) == [given]
    assert shell.asked == []


@pytest.mark.parametrize(
    ("path", "proof", "status"),
    [
        (PATH, None, 401),
        (HISTORY_PATH, None, 401),
        (HISTORY_PATH, PROOF[:-1], 401),
        (PATH, "", 401),
        (PATH, "0" * 64, 401),
        (PATH, PROOF[:-1], 401),
        # Not the path of replicas: a user's, who may do everything.
        (f"{PATH}/", PROOF, 404),
        (f"/{PATH}", PROOF, 404),
    ],
)
async def test_whoever_has_not_our_key_is_given_no_state(path: str, proof: str | None, status: int) -> None:
    headers = [("X-Visibility-Peer", proof)] if proof is not None else []
    answer = await Shell(peers=giver()).get(path, *headers)
    assert (answer.status, b"bert" in answer.body) == (status, False)


async def test_the_connection_of_a_replica_is_no_strangers() -> None:
    """Those are dropped when there are too many, and answered ever more slowly."""
    shell = Shell(peers=giver())
    for proof, is_known in ((PROOF[:-1], False), (PROOF, True)):
        connection = Peer()
        await shell.get(PATH, ("X-Visibility-Peer", proof), state={PEER: connection})
        assert connection.is_known is is_known


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE"])
async def test_it_is_only_read(method: str) -> None:
    answer = await Shell(peers=giver()).get(PATH, ("X-Visibility-Peer", PROOF), method=method)
    assert answer.status in (404, 405)


async def test_without_other_replicas_there_is_no_such_path() -> None:
    assert (await Shell().get(PATH, ("X-Visibility-Peer", PROOF))).status == 404
