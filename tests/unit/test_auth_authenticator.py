"""All methods together: their order, and what several verdicts amount to (A1, A2, A13 to A15, A19, A21).

What a 401 looks like (A20) is api/status.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cryptography import x509

from tests.asgi import http_scope
from tests.certificates import Authority, Certificate, now
from tests.reviews import FakeApi
from visibility_api.auth.authenticator import WARNING, RequestAuthenticator
from visibility_api.auth.certificates import CaPool, Peer
from visibility_api.auth.client_certificate import ClientCertificates
from visibility_api.auth.errors import AccessDenied, CredentialRejected, Unauthenticated
from visibility_api.auth.front_proxy import FrontProxy, ProxyHeaders
from visibility_api.auth.identity import ANONYMOUS, Identity
from visibility_api.auth.request_header_config import Trust
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import PATH, TokenReviewer

CLIENTS, PROXIES, STRANGERS = Authority("kubernetes"), Authority("front-proxy"), Authority("strangers")
NAMES = ProxyHeaders(
    user=(b"x-remote-user",), group=(b"x-remote-group",), extra_prefixes=(b"x-remote-extra-",)
)
BOTH = Trust(
    front_proxy=FrontProxy(CaPool(PROXIES.pem, name="requestheader-client"), NAMES, ["front-proxy-client"]),
    client_certificates=ClientCertificates(CaPool(CLIENTS.pem, name="client")),
)
PROXY = PROXIES.issue("front-proxy-client")
USER = CLIENTS.issue("cert-user", "cert-group")
FORGED = ("X-Remote-User", "root")
GOOD = ("Authorization", "Bearer good")
TOKEN_USER = {"authenticated": True, "user": {"username": "token-user"}}


async def authenticate(
    *headers: tuple[str, str],
    certificate: Certificate | None = None,
    trust: Trust = BOTH,
    token_status: dict[str, Any] | None = None,
    scope_out: dict[str, Any] | None = None,
) -> Identity:
    scope = http_scope("GET", "/apis/g/v1/trainjobs", headers)
    scope["state"]["peer"] = Peer(chain=certificate.chain if certificate else ())
    if scope_out is not None:
        scope_out.update(scope)
    api = FakeApi(status=token_status or {})
    tokens = TokenReviewer(ReviewClient(api, PATH, sleep=api.sleep))
    return await RequestAuthenticator(lambda: trust, tokens).authenticate(scope)


async def test_no_credentials_at_all_are_anonymous() -> None:
    """A1, A2, A19."""
    assert await authenticate() is ANONYMOUS
    assert await authenticate(FORGED, ("X-Remote-Group", "system:masters")) is ANONYMOUS  # A5
    assert await authenticate(("Authorization", "Basic Zm9vOmJhcg==")) is ANONYMOUS


async def test_scope_without_a_peer_is_a_connection_without_a_certificate() -> None:
    scope = http_scope("GET", "/", [FORGED])
    tokens = TokenReviewer(ReviewClient(FakeApi(status={}), PATH))
    assert await RequestAuthenticator(lambda: BOTH, tokens).authenticate(scope) is ANONYMOUS


async def test_first_method_that_succeeds_wins() -> None:
    """A1: front proxy, client certificate, token."""
    found = await authenticate(("X-Remote-User", "proxied"), GOOD, certificate=PROXY, token_status=TOKEN_USER)
    assert found.user == "proxied"
    found = await authenticate(FORGED, GOOD, certificate=USER, token_status=TOKEN_USER)
    assert found.user == "cert-user"
    found = await authenticate(FORGED, GOOD, token_status=TOKEN_USER)
    assert found.user == "token-user"


async def test_failed_method_does_not_stop_the_next() -> None:
    """A1, A2: a bad certificate and a good token are the token's user."""
    for certificate in (STRANGERS.issue("a"), PROXY, PROXIES.issue("other")):
        found = await authenticate(GOOD, certificate=certificate, token_status=TOKEN_USER)
        assert found.user == "token-user"


@pytest.mark.parametrize(
    ("certificate", "headers"),
    [
        (STRANGERS.issue("a"), []),
        (STRANGERS.issue("front-proxy-client"), [FORGED]),
        (PROXIES.issue("other"), [FORGED]),
        (PROXY, []),
        (CLIENTS.issue(None, "system:masters"), []),
        (None, [("Authorization", "Bearer bad")]),
        (STRANGERS.issue("a"), [("Authorization", "Bearer bad")]),
    ],
    ids=[
        "unknown CA", "forged proxy", "wrong name", "proxy for nobody", "nameless", "bad token", "both bad",
    ],
)  # fmt: skip
async def test_bad_credentials_alone_are_refused(
    certificate: Certificate | None, headers: list[tuple[str, str]]
) -> None:
    """A1, A2, A15."""
    with pytest.raises(Unauthenticated):
        await authenticate(*headers, certificate=certificate)


async def test_nothing_is_believed_of_certificates_while_no_ca_is_known() -> None:
    """A11, A12."""
    assert await authenticate(FORGED, certificate=PROXY, trust=Trust()) is ANONYMOUS


async def test_extra_space_before_a_token_is_ignored_with_a_warning() -> None:
    """A15."""
    scope: dict[str, Any] = {}
    found = await authenticate(("Authorization", "Bearer  good"), token_status=TOKEN_USER, scope_out=scope)
    assert found is ANONYMOUS
    assert b"extra space before the bearer token" in scope["state"][WARNING]


async def test_every_method_adds_the_group_of_the_authenticated() -> None:
    """A14."""
    for found in (
        await authenticate(("X-Remote-User", "proxied"), certificate=PROXY),
        await authenticate(certificate=USER),
        await authenticate(GOOD, token_status=TOKEN_USER),
    ):
        assert found.groups[-1] == "system:authenticated"


async def test_client_certificate_carries_its_fingerprint_and_uid() -> None:
    """A13."""
    uid = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
    leaf = CLIENTS.issue("jane", "dev", "ops", attributes=[(uid, "7")])
    found = await authenticate(certificate=leaf)
    digest = hashlib.sha256(leaf.chain[0]).hexdigest()
    assert found == Identity(
        user="jane",
        groups=("dev", "ops", "system:authenticated"),
        uid="7",
        extra=(("authentication.kubernetes.io/credential-id", (f"X509SHA256={digest}",)),),
    )
    with pytest.raises(Unauthenticated, match="one UID"):
        await authenticate(certificate=CLIENTS.issue("jane", attributes=[(uid, "7"), (uid, "8")]))


async def test_certificate_that_expires_while_connected_stops_working() -> None:
    """A3."""
    time = [now().timestamp()]
    pool = CaPool(CLIENTS.pem, name="client", clock=lambda: time[0])
    ways = ClientCertificates(pool)
    peer = Peer(chain=USER.chain)
    assert ways.identify(peer) is not None
    time[0] += 3 * 86400
    with pytest.raises(CredentialRejected, match="not valid"):
        ways.identify(peer)


@pytest.mark.parametrize(
    "name", ["Impersonate-User", "impersonate-group", "Impersonate-Extra-a", "Impersonate-Uid"]
)
async def test_impersonation_is_refused_and_never_ignored(name: str) -> None:
    """A21, for whoever asks, the front proxy included."""
    for certificate, headers in ((None, []), (USER, []), (PROXY, [("X-Remote-User", "jane")])):
        with pytest.raises(AccessDenied, match="send the request to kube-apiserver") as caught:
            await authenticate(*headers, (name, "root"), certificate=certificate)
        assert caught.value.attributes.verb == "impersonate"
        assert caught.value.identity.user != "root"


async def test_reasons_of_a_refusal_carry_no_token() -> None:
    with pytest.raises(Unauthenticated) as caught:
        await authenticate(("Authorization", "Bearer s3cret"))
    assert "s3cret" not in str(caught.value)
