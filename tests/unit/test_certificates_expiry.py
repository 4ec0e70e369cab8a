"""What is said of a certificate before its end and after."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.certificates import DAY, Authority, now
from visibility_api.auth.errors import TrustUnusable
from visibility_api.certificates.expiry import Expiry
from visibility_api.serving.tls import Pair

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def said(life: timedelta, left: timedelta) -> tuple[str | None, str | None]:
    """The note and the failure for a certificate of which so much is left."""
    ends = now() + life
    certificate = Authority("ca").issue("server", not_before=now() - HOUR, not_after=ends)
    key = certificate.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pair = Pair(certificate.pem.encode(), key)
    expiry = Expiry(lambda: pair, lambda: ends - left)
    if left <= timedelta():
        with pytest.raises(TrustUnusable, match=r"the serving certificate ended on .* UTC: renew it"):
            expiry.require_valid()
    else:
        expiry.require_valid()
    return expiry.note(), expiry.failure()


@pytest.mark.parametrize(
    ("life", "left", "is_noted", "is_failed"),
    [
        (365 * DAY, 31 * DAY, False, False),
        (365 * DAY, 29 * DAY, True, False),
        (365 * DAY, 2 * DAY, True, True),
        (365 * DAY, -DAY, True, True),
        (90 * DAY, 25 * DAY, False, False),  # it is renewed when a third is left
        (90 * DAY, 20 * DAY, True, False),
        (10 * MINUTE, 3 * MINUTE, False, False),
        (10 * MINUTE, 2 * MINUTE, True, False),
        (10 * MINUTE, MINUTE / 2, True, True),
    ],
)
def test_an_end_is_noted_in_time_and_then_a_failure(
    life: timedelta, left: timedelta, is_noted: bool, is_failed: bool
) -> None:
    note, failure = said(life, left)
    assert (note is not None, failure is not None) == (is_noted, is_failed)


def test_the_day_of_the_end_is_named() -> None:
    for left, words in ((2 * DAY, "the certificate ends on 20"), (-DAY, "the certificate ended on 20")):
        for each in said(365 * DAY, left):
            assert each is not None
            assert each.startswith(words)
