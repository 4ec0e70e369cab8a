"""Chains are judged by Go's rules, for each CA pool by itself, and remembered only as long as they hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.certificates import ANY, CLIENT, DAY, SERVER, Authority, Certificate, Extension, key_usage, now
from visibility_api.auth.certificates import REFUSED_FOR_S, CaPool, Peer, Verification
from visibility_api.auth.errors import TrustUnusable

ROOT = Authority("kubernetes")


def judge(pem: str, leaf: Certificate) -> Verification:
    return CaPool(pem, name="client").verify(Peer(chain=leaf.chain))


def holds(pem: str, leaf: Certificate) -> bool:
    verdict = judge(pem, leaf)
    assert (verdict.certificate is None) == bool(verdict.fault)
    return verdict.certificate is not None


def usage(*usages: x509.ObjectIdentifier) -> Extension:
    return x509.ExtendedKeyUsage(usages), False


@pytest.mark.parametrize(
    "make_key",
    [
        lambda: ec.generate_private_key(ec.SECP256R1()),
        lambda: ec.generate_private_key(ec.SECP384R1()),
        lambda: rsa.generate_private_key(65537, 2048),
    ],
    ids=["P-256", "P-384", "RSA"],
)
def test_certificates_as_kubeadm_makes_them_hold(make_key: Callable[[], ec.EllipticCurvePrivateKey]) -> None:
    """A4, A13: no subject alternative name, client-auth usage, a CA with or without key usage."""
    for extensions in ([], [key_usage(key_cert_sign=True)]):
        root = Authority("kubernetes", key=make_key(), extensions=extensions)
        leaf = root.issue("kube-proxy", key=make_key(), extensions=[key_usage(key_cert_sign=False)])
        verdict = judge(root.pem, leaf)
        assert (verdict.fault, verdict.common_name) == ("", "kube-proxy")


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (ROOT.issue("a", usages=[CLIENT, SERVER]), True),
        (ROOT.issue("a", usages=[ANY]), True),
        (ROOT.issue("a", usages=[]), True),
        (ROOT.issue("a", hosts=["a.example", "10.0.0.1"]), True),
        (ROOT.issue("a", usages=[SERVER]), False),
        (ROOT.issue("a", not_after=now() - DAY), False),
        (ROOT.issue("a", not_before=now() + DAY / 2), False),
        (Authority("kubernetes").issue("a"), False),
        (Authority("another").issue("a"), False),
        (
            ROOT.issue(
                "a",
                extensions=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), b"\x05\0"), True)],
            ),
            False,
        ),
    ],
    ids=[
        "client and server", "any usage", "no usage", "with names", "server only", "expired", "not yet",
        "CA of the same name", "another CA", "unknown critical extension",
    ],
)  # fmt: skip
def test_leaf_is_judged_by_usage_time_and_issuer(leaf: Certificate, expected: bool) -> None:
    assert holds(ROOT.pem, leaf) is expected


def test_intermediate_sent_by_the_peer_is_used() -> None:
    """A4."""
    leaf = ROOT.intermediate("middle").intermediate("lower").issue("a")
    assert len(leaf.chain) == 3
    assert holds(ROOT.pem, leaf)
    assert not holds(ROOT.pem, Certificate(certificate=leaf.certificate, key=leaf.key))


@pytest.mark.parametrize(
    "middle",
    [
        ROOT.intermediate("m", extensions=[usage(SERVER)]),
        ROOT.intermediate("m", extensions=[key_usage(key_cert_sign=False)]),
        ROOT.intermediate("m", not_after=now() - DAY),
    ],
    ids=["usage without client", "may not sign", "expired"],
)
def test_intermediate_that_may_not_vouch_breaks_the_chain(middle: Authority) -> None:
    assert not holds(ROOT.pem, middle.issue("a"))


def test_client_certificate_cannot_act_as_a_ca() -> None:
    owner = ROOT.issue("owner")
    forger = Authority("x")
    forger.key, forger.subject = owner.key, owner.certificate.subject
    forged = forger.issue("kube-proxy")
    chain = (*forged.chain, *owner.chain)
    assert CaPool(ROOT.pem, name="client").verify(Peer(chain=chain)).certificate is None


def test_path_length_and_root_expiry_count() -> None:
    shallow = Authority("shallow", path_length=0)
    assert holds(shallow.pem, shallow.issue("a"))
    assert not holds(shallow.pem, shallow.intermediate("m").issue("a"))
    old = Authority("old", not_after=now() - DAY / 2)
    assert not holds(old.pem, old.issue("a"))


def test_intermediate_in_the_pool_is_an_anchor() -> None:
    middle = ROOT.intermediate("middle")
    assert holds(middle.pem, Certificate(certificate=(leaf := middle.issue("a")).certificate, key=leaf.key))


def test_right_ca_among_several_of_one_name_is_found() -> None:
    assert holds(Authority("kubernetes").pem + "# old\n" + ROOT.pem, ROOT.issue("a"))


def test_ed25519_leaf_holds() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    assert holds(ROOT.pem, ROOT.issue("a", key=key))  # type: ignore[arg-type]  # the helper signs with others


def test_last_common_name_counts_as_in_go() -> None:
    leaf = ROOT.issue("first", attributes=[(x509.NameOID.COMMON_NAME, "last")])
    assert judge(ROOT.pem, leaf).common_name == "last"


def test_unreadable_chain_is_a_refusal_and_no_crash() -> None:
    for chain in ((b"",), (b"\x30\x03\x02\x01\x01",), (*ROOT.issue("a").chain, b"junk"), ()):
        verdict = CaPool(ROOT.pem, name="client").verify(Peer(chain=chain))
        assert verdict.certificate is None
        assert verdict.fault


def test_a_verification_is_cached_until_a_certificate_of_the_chain_expires() -> None:
    """A3: what held when the connection was opened does not hold for ever."""
    time = [now().timestamp()]
    pool = CaPool(ROOT.pem, name="client", clock=lambda: time[0])
    peer = Peer(chain=ROOT.issue("a", not_after=now() + timedelta(hours=1)).chain)
    first = pool.verify(peer)
    time[0] += 3500
    assert pool.verify(peer) is first
    time[0] += 200
    assert pool.verify(peer).certificate is None
    assert "not valid" in pool.verify(peer).fault


def test_refusal_is_judged_again_after_a_while() -> None:
    time = [now().timestamp()]
    pool = CaPool(ROOT.pem, name="client", clock=lambda: time[0])
    peer = Peer(chain=ROOT.issue("a", not_before=now() + timedelta(seconds=5)).chain)
    refused = pool.verify(peer)
    assert refused.certificate is None
    assert pool.verify(peer) is refused
    time[0] += REFUSED_FOR_S + 1
    assert pool.verify(peer).certificate is not None


def test_rotated_pool_judges_an_open_connection_again() -> None:
    """A3."""
    peer = Peer(chain=ROOT.issue("a").chain)
    other = Authority("next")
    assert CaPool(ROOT.pem, name="client").verify(peer).certificate is not None
    assert CaPool(other.pem, name="client").verify(peer).certificate is None
    assert CaPool(other.pem + ROOT.pem, name="client").verify(peer).certificate is not None


def test_pools_of_two_names_judge_one_peer_apart() -> None:
    peer = Peer(chain=ROOT.issue("a").chain)
    other = CaPool(Authority("proxy").pem, name="requestheader-client")
    assert CaPool(ROOT.pem, name="client").verify(peer).certificate is not None
    assert other.verify(peer).certificate is None
    assert CaPool(ROOT.pem, name="client").verify(peer).certificate is not None


@pytest.mark.parametrize(
    "pem",
    ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", " " * 2_000_000],
    ids=["empty", "text", "no DER", "too large"],
)
def test_bundle_without_a_certificate_is_unusable(pem: str) -> None:
    with pytest.raises(TrustUnusable, match="client CA bundle"):
        CaPool(pem, name="client")
