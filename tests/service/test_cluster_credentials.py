"""What we show kube-apiserver: tokens that are rotated, and configurations that cannot be used."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, incluster_config

from visibility_api.cluster.client import KubeClient
from visibility_api.cluster.errors import ClusterError, Unreachable

from .fake_apiserver import fake_apiserver


async def echo(request: web.Request) -> web.Response:
    return web.Response(text=request.headers.get("Authorization", "none"))


async def test_a_rotated_token_is_read_again_and_a_file_caught_empty_is_outlived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", timedelta(0))
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    ca.write_text("not read here")
    loader = incluster_config.InClusterConfigLoader(
        str(token), str(ca), environ={"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "6443"}
    )

    def as_in_a_pod(configuration: Configuration) -> None:
        host = configuration.host
        loader.load_and_set(configuration)
        assert configuration.host == "https://[::1]:6443"
        configuration.host, configuration.ssl_ca_cert = host, None

    async with fake_apiserver(echo, configure=as_in_a_pod) as client:
        assert await client.get("/version") == b"Bearer first"
        token.write_text("")
        with pytest.raises(Unreachable, match="cannot be refreshed"):
            await client.get("/version")
        token.unlink()
        with pytest.raises(Unreachable, match="cannot be refreshed"):
            async with client.lines("/version", query=(), silence_s=1):
                pass
        with pytest.raises(Unreachable, match="cannot be refreshed"):
            await client.exchange("/", query=(), protocols=(), max_message_bytes=1, take=lambda _: True)
        token.write_text("second")
        assert await client.get("/version") == b"Bearer second"


async def test_what_a_credential_plugin_prints_is_never_repeated() -> None:
    def break_plugin(configuration: Configuration) -> None:
        async def refresh(_: Configuration) -> None:
            raise ConfigException("exec: cannot parse: s3cr3t-token")

        configuration.api_key["BearerToken"] = "Bearer old"
        configuration.refresh_api_key_hook = refresh

    async with fake_apiserver(echo, configure=break_plugin) as client:
        with pytest.raises(Unreachable) as raised:
            await client.get("/version")
    assert "s3cr3t" not in str(raised.value)


CLUSTER = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
WHOLE = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n" + CLUSTER
NO_CERTIFICATE = base64.b64encode(b"s3cr3t").decode()
PLUGIN = "{command: /does/not/exist, apiVersion: client.authentication.k8s.io/v1}"


def user(fields: str) -> str:
    return WHOLE + "users: [{name: u, user: {" + fields + "}}]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "- a list",
        "s3cr3t: [",
        "kind: Config",
        WHOLE + "users: 7",
        user("client-certificate-data: s3cr3t, client-key-data: s3cr3t"),
        user(f"client-certificate-data: {NO_CERTIFICATE}"),
        user("tokenFile: /does/not/exist"),
        user(f"exec: {PLUGIN}"),
        user("auth-provider: {name: oidc, config: {id-token: s3cr3t}}"),
        WHOLE.replace("server", "certificate-authority: /does/not/exist, server"),
    ],
    ids=range(12),
)
async def test_a_kubeconfig_that_cannot_be_used_is_told_without_its_secrets(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(ClusterError, match="kubeconfig") as raised:
        async with await KubeClient.connect(file):
            pass
    assert str(file) in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


async def test_outside_a_cluster_the_message_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="outside a cluster give --kubeconfig"):
        await KubeClient.connect(None)
