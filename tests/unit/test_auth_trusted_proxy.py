"""A platform's proxy: whom it may name, and that nobody else may (headers alone are never identity)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.asgi import http_scope
from tests.certificates import Authority, Certificate
from tests.reviews import FakeApi
from visibility_api.auth.authenticator import FORWARDED, RequestAuthenticator
from visibility_api.auth.certificates import CaPool, Peer
from visibility_api.auth.client_certificate import ClientCertificates
from visibility_api.auth.errors import AccessDenied, TrustUnusable, Unauthenticated
from visibility_api.auth.front_proxy import FrontProxy, ProxyHeaders
from visibility_api.auth.identity import ANONYMOUS, Identity
from visibility_api.auth.request_header_config import RequestHeaderConfig, Trust
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import PATH, TokenReviewer
from visibility_api.auth.trusted_proxy import ProxyRules, TrustedProxy, TrustedProxyFile

CLIENTS, FRONT, INGRESS = Authority("kubernetes"), Authority("front-proxy"), Authority("ingress")
HEADERS = ProxyHeaders(user=(b"x-remote-user",), group=(b"x-remote-group",))
KUBEFLOW = ProxyRules(
    allowed_names=("ingress-gateway",), user_header="kubeflow-userid", group_header="Kubeflow-Groups"
)
GATEWAY = INGRESS.issue("ingress-gateway")
ANN = ("kubeflow-userid", "ann@example.com")
TOKEN = ("Authorization", "Bearer good")


def trust(rules: ProxyRules = KUBEFLOW, *, ca: Authority = INGRESS) -> Trust:
    return Trust(
        front_proxy=FrontProxy(CaPool(FRONT.pem, name="requestheader-client"), HEADERS, ["front"]),
        client_certificates=ClientCertificates(CaPool(CLIENTS.pem, name="client")),
        trusted_proxy=TrustedProxy(CaPool(ca.pem, name="trusted-proxy"), rules),
    )


async def authenticate(
    *headers: tuple[str, str], certificate: Certificate | None = GATEWAY, trusted: Trust | None = None
) -> Identity:
    scope = http_scope("GET", "/apis/g/v1/trainjobs", headers)
    scope["state"]["peer"] = Peer(chain=certificate.chain if certificate else ())
    api = FakeApi(status={"authenticated": True, "user": {"username": "token-user"}})
    tokens = TokenReviewer(ReviewClient(api, PATH, sleep=api.sleep))
    believed = trusted or trust()
    found = await RequestAuthenticator(lambda: believed, tokens).authenticate(scope)
    assert FORWARDED not in scope["state"]  # the places of kube-apiserver's aggregator stay its own
    return found


async def test_the_proxys_certificate_and_header_are_the_user() -> None:
    assert await authenticate(ANN) == Identity(user="ann@example.com", groups=("system:authenticated",))


async def test_groups_are_those_of_the_header_separated_by_commas() -> None:
    found = await authenticate(ANN, ("kubeflow-groups", "ml, research,,"), ("kubeflow-groups", "ops"))
    assert found.groups == ("ml", "research", "ops", "system:authenticated")


async def test_without_a_group_header_in_the_settings_none_is_read() -> None:
    rules = ProxyRules(allowed_names=("ingress-gateway",), user_header="kubeflow-userid")
    found = await authenticate(ANN, ("kubeflow-groups", "ml"), ("", "ml"), trusted=trust(rules))
    assert found.groups == ("system:authenticated",)


async def test_prefixes_keep_its_users_apart_from_the_clusters_own() -> None:
    rules = ProxyRules(
        allowed_names=("ingress-gateway",),
        user_header="X-Forwarded-User",
        group_header="X-Forwarded-Groups",
        user_prefix="oidc:",
        group_prefix="oidc:",
    )
    headers = (("x-forwarded-user", "system:admin"), ("x-forwarded-groups", "system:masters"))
    found = await authenticate(*headers, trusted=trust(rules))
    assert (found.user, found.groups[0]) == ("oidc:system:admin", "oidc:system:masters")


@pytest.mark.parametrize(
    "headers",
    [
        [("kubeflow-userid", "system:admin")],
        [("kubeflow-userid", "system:serviceaccount:kube-system:admin")],
        [("kubeflow-userid", "system:anonymous")],
        [ANN, ("kubeflow-groups", "ml,system:masters")],
        [ANN, ("kubeflow-groups", "system:authenticated")],
    ],
)
async def test_it_can_make_nobody_a_part_of_the_cluster(headers: list[tuple[str, str]]) -> None:
    """A member of system:masters would be asked about by no access review."""
    with pytest.raises(Unauthenticated, match="Kubernetes' own"):
        await authenticate(*headers)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("kubeflow-userid", "")],
        [("kubeflow-userid", " ")],
        [ANN, ("kubeflow-userid", "root@example.com")],  # a client's own, passed on beside it
        [("kubeflow-userid", "\xff")],
        [("X-Remote-User", "root")],
        [TOKEN],
    ],
)
async def test_a_request_of_the_proxys_that_does_not_name_one_user_is_nobodys(
    headers: list[tuple[str, str]],
) -> None:
    """Neither the proxy itself, nor whoever a token names, nor anonymous."""
    with pytest.raises(Unauthenticated):
        await authenticate(*headers)


async def test_not_even_when_its_ca_is_the_clusters_own() -> None:
    gateway = CLIENTS.issue("ingress-gateway", "system:masters")
    shared = trust(ca=CLIENTS)
    assert (await authenticate(ANN, certificate=gateway, trusted=shared)).user == "ann@example.com"
    with pytest.raises(Unauthenticated):
        await authenticate(certificate=gateway, trusted=shared)


async def test_forged_user_header_of_a_platform_has_no_effect_without_its_proxys_certificate() -> None:
    assert await authenticate(ANN, certificate=None) is ANONYMOUS
    user = await authenticate(ANN, certificate=CLIENTS.issue("bob"))
    assert user.user == "bob"
    for certificate in (INGRESS.issue("another"), Authority("strangers").issue("ingress-gateway")):
        with pytest.raises(Unauthenticated):
            await authenticate(ANN, certificate=certificate)


async def test_it_is_not_kube_apiservers_front_proxy_nor_that_one_it() -> None:
    for header in (("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")):
        found = await authenticate(ANN, header)
        assert (found.user, found.groups) == ("ann@example.com", ("system:authenticated",))
    with pytest.raises(Unauthenticated):
        await authenticate(ANN, certificate=FRONT.issue("front"))


async def test_impersonation_is_refused_behind_it_too() -> None:
    with pytest.raises(AccessDenied):
        await authenticate(ANN, ("Impersonate-User", "root"))


async def test_without_the_setting_its_certificate_is_a_strangers() -> None:
    with pytest.raises(Unauthenticated):
        await authenticate(ANN, trusted=Trust(client_certificates=trust().client_certificates))


async def test_very_large_headers_are_read_and_not_kept() -> None:
    names = ",".join(f"group-{number}" for number in range(4000))
    found = await authenticate(ANN, ("kubeflow-groups", names))
    assert len(found.groups) == 4001


def test_its_ca_is_asked_for_in_the_handshake_and_follows_its_file(tmp_path: Path) -> None:
    told: list[str] = []
    config = RequestHeaderConfig(on_change=lambda trust: told.append(trust.ca_pem))
    file = tmp_path / "ca.crt"
    file.write_text(INGRESS.pem)
    followed = TrustedProxyFile(file, KUBEFLOW, on_change=config.trust_proxy)
    assert followed.load()
    before = config.trust.trusted_proxy
    assert (told, followed.load()) == ([CaPool(INGRESS.pem, name="x").pem], False)
    file.write_text("half a certif")
    with pytest.raises(TrustUnusable):
        followed.load()
    file.unlink()
    with pytest.raises(TrustUnusable, match="cannot read the trusted proxy's CA"):
        followed.load()
    assert config.trust.trusted_proxy is before
    file.write_text(CLIENTS.pem)
    assert followed.load()
    assert config.trust.trusted_proxy is not before
    assert told[-1] == CaPool(CLIENTS.pem, name="x").pem


async def test_a_file_that_cannot_be_used_is_logged_once_and_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    used = asyncio.Event()
    file = tmp_path / "ca.crt"
    reads = 0

    def count(_proxy: TrustedProxy) -> None:
        used.set()

    followed = TrustedProxyFile(file, KUBEFLOW, on_change=count)
    original = followed.load

    def load() -> bool:
        nonlocal reads
        reads += 1
        if reads == 3:
            file.write_text(INGRESS.pem)
        return original()

    followed.load = load  # type: ignore[method-assign]
    following = asyncio.create_task(followed.follow(interval_s=0))
    await asyncio.wait_for(used.wait(), 60)
    following.cancel()
    logged = "".join(capsys.readouterr())
    assert logged.count("trusted proxy's CA not reloaded") == 1
