"""When CAs and serving certificates are made anew, and what of a Secret can be used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from hypothesis import given, strategies as st

from visibility_api.certificates.making import key_pem
from visibility_api.certificates.renewal import (
    CA,
    CA_KEYS,
    CERTIFICATE,
    KEY,
    LIVES_OF_A_CA,
    MAX_CAS,
    Kept,
    decode,
    renew,
)

NAMES = ["visibility-api.ns.svc", "visibility-api.ns.svc.cluster.local"]
LIFETIME = timedelta(days=90)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def leaf_of(kept: Kept) -> x509.Certificate:
    assert kept.pair is not None
    return x509.load_pem_x509_certificate(kept.pair.certificate)


def is_trusted(leaf: x509.Certificate, kept: Kept, at: datetime) -> bool:
    """As a client sees it, to which the CAs of `kept` were given."""
    store = x509.verification.Store([each.certificate for each in kept.authorities])
    policy = x509.verification.PolicyBuilder().store(store).time(at.replace(tzinfo=None))
    try:
        policy.build_server_verifier(x509.DNSName(NAMES[0])).verify(leaf, [])
    except x509.verification.VerificationError:
        return False
    return True


def test_the_first_certificate_is_trusted_under_the_name_of_the_service() -> None:
    """P4: SERVICE.NAMESPACE.svc, under a CA that was made with it."""
    kept, pair = renew(Kept(), NAMES, LIFETIME, BEGIN)
    assert pair == kept.pair
    assert is_trusted(leaf_of(kept), kept, BEGIN)
    assert leaf_of(kept).not_valid_after_utc == BEGIN + LIFETIME
    assert len(kept.authorities) == 1


def test_nothing_changes_until_a_third_of_the_lifetime_is_left() -> None:
    kept, _ = renew(Kept(), NAMES, LIFETIME, BEGIN)
    assert renew(kept, NAMES, LIFETIME, BEGIN + 59 * DAY)[0] is kept
    later, _ = renew(kept, NAMES, LIFETIME, BEGIN + 61 * DAY)
    assert later.pair != kept.pair
    assert later.authorities == kept.authorities


def test_for_twenty_years_whoever_trusts_the_cas_of_half_a_year_ago_trusts_the_certificate() -> None:
    """A job reads the CAs once, when it begins."""
    at, kept = BEGIN, renew(Kept(), NAMES, LIFETIME, BEGIN)[0]
    past: list[tuple[datetime, Kept]] = []
    seen = set()
    while at < BEGIN + timedelta(days=20 * 365):
        kept, _ = renew(kept, NAMES, LIFETIME, at)
        seen |= {each.certificate for each in kept.authorities}
        past = [each for each in past if each[0] >= at - timedelta(days=180)]
        past.append((at, kept))
        assert is_trusted(leaf_of(kept), past[0][1], at)
        assert len(kept.authorities) <= 2
        at += 10 * DAY
    assert len(seen) > 20 * 365 / (90 * LIVES_OF_A_CA)


@pytest.mark.parametrize("names", [["visibility-api.other.svc"], [*NAMES, "more.svc"]])
def test_a_certificate_of_other_names_is_replaced(names: list[str]) -> None:
    kept, _ = renew(Kept(), NAMES, LIFETIME, BEGIN)
    assert renew(kept, names, LIFETIME, BEGIN)[0] is not kept


def test_what_a_secret_has_is_read_back() -> None:
    kept, _ = renew(Kept(), NAMES, LIFETIME, BEGIN)
    kept, _ = renew(kept, NAMES, LIFETIME, BEGIN + (LIVES_OF_A_CA - 2) * LIFETIME)
    data = kept.encode()
    assert set(data) == {CA, CA_KEYS, CERTIFICATE, KEY}
    found = decode(data)
    assert found.encode() == data
    assert [each.certificate for each in found.authorities] == [each.certificate for each in kept.authorities]
    assert renew(found, NAMES, LIFETIME, BEGIN + (LIVES_OF_A_CA - 2) * LIFETIME)[0] is found


def test_a_ca_without_its_key_stays_trusted_and_signs_nothing() -> None:
    """As of a Secret that an earlier version has made."""
    before, _ = renew(Kept(), NAMES, LIFETIME, BEGIN)
    found, pair = renew(decode(before.encode() | {CA_KEYS: b""}), NAMES, LIFETIME, BEGIN)
    assert pair == before.pair
    assert [each.key is not None for each in found.authorities] == [False, True]
    later, _ = renew(found, NAMES, LIFETIME, BEGIN + 61 * DAY)
    assert leaf_of(later).issuer == found.authorities[1].certificate.subject


@pytest.mark.parametrize("name", [CA, CERTIFICATE, KEY])
def test_a_part_that_is_missing_or_of_another_is_made_anew(name: str) -> None:
    kept, other = (renew(Kept(), NAMES, LIFETIME, BEGIN)[0] for _ in range(2))
    for part in (
        b"",
        other.encode()[name],
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ):
        found, _ = renew(decode(kept.encode() | {name: part}), NAMES, LIFETIME, BEGIN)
        assert is_trusted(leaf_of(found), found, BEGIN)


@given(st.dictionaries(st.sampled_from([CA, CA_KEYS, CERTIFICATE, KEY, "else"]), st.binary()))
def test_whatever_the_secret_has_a_certificate_comes_of_it(data: dict[str, bytes]) -> None:
    found, pair = renew(decode(data), NAMES, LIFETIME, BEGIN)
    assert found.pair == pair


def test_cas_do_not_pile_up() -> None:
    kept = Kept()
    for _ in range(MAX_CAS + 3):
        made, _ = renew(Kept(), NAMES, LIFETIME, BEGIN)
        kept = Kept((*kept.authorities, *made.authorities), made.pair)
    found, _ = renew(kept, NAMES, LIFETIME, BEGIN)
    assert len(found.authorities) == MAX_CAS
    assert all(
        each.key is not None and key_pem(each.key) in found.encode()[CA_KEYS] for each in found.authorities
    )
