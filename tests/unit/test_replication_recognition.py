"""How replicas recognise each other, and where they are."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.certificates import Authority, Certificate
from visibility_api.replication.addresses import split_name
from visibility_api.replication.recognition import PROOF, ReplicaKey, derive_replica_key, is_proof

SERVING = Authority("serving")
OURS, OTHER = (SERVING.issue("visibility-api", hosts=["127.0.0.1"]) for _ in range(2))


def proof_of(certificate: Certificate, key: Certificate) -> str:
    pem = key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return derive_replica_key(certificate.pem.encode(), pem).proof


def test_the_proof_is_of_one_certificate_and_its_key() -> None:
    proof = proof_of(OURS, OURS)
    assert proof == proof_of(OURS, OURS)
    assert len({proof, proof_of(OTHER, OTHER), proof_of(OURS, OTHER), proof_of(OTHER, OURS)}) == 4


def test_the_proof_does_not_depend_on_how_the_key_is_written(tmp_path: Path) -> None:
    _, key = OURS.write(tmp_path, "ours")  # the traditional form
    assert derive_replica_key(OURS.pem.encode(), key.read_bytes()).proof == proof_of(OURS, OURS)


def test_names_have_our_port_or_their_own() -> None:
    assert split_name("one.ns.svc", 10250) == ("one.ns.svc", 10250)
    assert split_name("one:8443", 10250) == ("one", 8443)


@pytest.mark.parametrize("given", [None, b"", b"proo", b"proof2"])
def test_whoever_has_not_the_proof_is_no_replica(given: bytes | None) -> None:
    headers = [] if given is None else [(PROOF, given), (PROOF, b"proof")]
    keys = [ReplicaKey(aiohttp.Fingerprint(bytes(32)), proof) for proof in ("proof", "coming")]
    assert not is_proof(headers, lambda: keys)
    assert is_proof([(PROOF, b"proof")], lambda: keys)
    assert is_proof([(PROOF, b"coming")], lambda: keys)
