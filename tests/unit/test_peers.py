"""States on their way between replicas: frames, and who may ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings, strategies as st

from tests.certificates import Authority, Certificate
from visibility_api.errors.status import TooManyRequests, Unauthorized
from visibility_api.jobs.job import JobRef
from visibility_api.jobs.saved import SavedJob
from visibility_api.peers.addresses import Address, split_name
from visibility_api.peers.frames import END, MAX_FRAME_BYTES, BadFrame, FrameReader, frame
from visibility_api.peers.giving import MAX_STREAMS, PORT, StateGiver
from visibility_api.peers.recognition import PROOF, derive_proof


def saved(name: str, state: bytes = b"state") -> SavedJob:
    ref = JobRef(resource="trainjobs", namespace="team-a", name=name, uid=f"uid-of-{name}")
    return SavedJob(ref=ref, format=1, state=state)


# --- frames


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20), st.lists(st.integers(1, 300), min_size=1))
def test_a_stream_is_read_however_it_is_cut(states: Sequence[bytes], cuts: Sequence[int]) -> None:
    jobs = [saved(f"job-{number}", state) for number, state in enumerate(states)]
    stream = b"".join(map(frame, jobs)) + END
    reader, found, number = FrameReader(), [], 0
    while stream:
        size = cuts[number % len(cuts)]
        assert not reader.is_ended
        found += reader.feed(stream[:size])
        stream, number = stream[size:], number + 1
    assert (found, reader.is_ended) == (jobs, True)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_jobs_or_refused(data: bytes) -> None:
    reader = FrameReader()
    try:
        found = list(reader.feed(data))
    except BadFrame:
        return
    assert all(isinstance(each, SavedJob) for each in found)


def test_a_frame_without_end_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadFrame, match="too long"):
        list(FrameReader().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big")))
    assert frame(saved("large", b"x" * MAX_FRAME_BYTES)) == b""


# --- who may ask

SERVING = Authority("serving")
OURS, OTHER = (SERVING.issue("visibility-api", hosts=["127.0.0.1"]) for _ in range(2))


def proof_of(certificate: Certificate, key: Certificate) -> str:
    pem = key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return derive_proof(certificate.pem.encode(), pem)


def test_the_proof_is_of_one_certificate_and_its_key() -> None:
    proof = proof_of(OURS, OURS)
    assert proof == proof_of(OURS, OURS)
    assert len({proof, proof_of(OTHER, OTHER), proof_of(OURS, OTHER), proof_of(OTHER, OURS)}) == 4


def test_the_proof_does_not_depend_on_how_the_key_is_written(tmp_path: Path) -> None:
    _, key = OURS.write(tmp_path, "ours")  # the traditional form
    assert derive_proof(OURS.pem.encode(), key.read_bytes()) == proof_of(OURS, OURS)


def giver(proof: str = "proof", *jobs: SavedJob) -> tuple[StateGiver, list[Address]]:
    met: list[Address] = []
    by_ref = {each.ref: each for each in jobs}
    return StateGiver(proof=lambda: proof, jobs=lambda: by_ref, snapshot=by_ref.get, met=met.append), met


def test_only_who_has_the_proof_is_admitted_and_met() -> None:
    asked, met = giver()
    for headers in ([], [(PROOF, b"")], [(PROOF, b"proo")], [(PROOF, b"proof2"), (PROOF, b"proof")]):
        with pytest.raises(Unauthorized):
            asked.admit([*headers, (PORT, b"10250")], "10.0.0.7")
    assert met == []
    asked.admit([(PROOF, b"proof"), (PORT, b"10250")], "10.0.0.7")
    for port in (b"", b"0", b"65536", b"-1", b"99999999999", b"x", b"010250", b"1" * 5000):
        asked.admit([(PROOF, b"proof"), (PORT, port)], "10.0.0.8")
    assert met == [Address("10.0.0.7", 10250)]


@pytest.mark.parametrize("client", ["::ffff:10.0.0.7", "::1", "fe80::1%eth0", "2001:db8::7"])
def test_a_replica_has_one_address_however_its_connection_shows_it(client: str) -> None:
    """Or it would be relayed to twice: there, and where DNS says that it is."""
    asked, met = giver()
    asked.admit([(PROOF, b"proof"), (PORT, b"10250")], client)
    assert met == [Address(client.removeprefix("::ffff:"), 10250)]


async def test_it_gives_every_job_that_is_there() -> None:
    jobs = [saved(f"job-{number}", b"x" * 1000) for number in range(300)]
    asked, _ = giver("proof", *jobs)
    reader, pieces = FrameReader(), [piece async for piece in asked.stream()]
    assert len(pieces) > 2
    assert [each for piece in pieces for each in reader.feed(piece)] == jobs
    assert reader.is_ended


async def test_a_fault_of_one_job_costs_no_other() -> None:
    good, bad, gone = saved("good"), saved("bad"), saved("gone")

    def snapshot(ref: JobRef) -> SavedJob | None:
        if ref == bad.ref:
            raise RuntimeError
        return good if ref == good.ref else None

    asked = StateGiver(proof=lambda: "p", jobs=lambda: [bad.ref, gone.ref, good.ref], snapshot=snapshot)
    reader = FrameReader()
    assert [each async for piece in asked.stream() for each in reader.feed(piece)] == [good]


async def test_streams_are_bounded_in_number() -> None:
    asked, _ = giver("proof", saved("a"))
    streams = [asked.stream() for _ in range(MAX_STREAMS)]
    for each in streams:
        await anext(each)
    with pytest.raises(TooManyRequests):
        asked.admit([(PROOF, b"proof")], "")
    for each in streams:
        await each.aclose()
    asked.admit([(PROOF, b"proof")], "")


def test_names_have_our_port_or_their_own() -> None:
    assert split_name("one.ns.svc", 10250) == ("one.ns.svc", 10250)
    assert split_name("one:8443", 10250) == ("one", 8443)
