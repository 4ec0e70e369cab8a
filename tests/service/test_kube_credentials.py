"""Credentials for kube-apiserver: tokens and TLS files that change, configurations that cannot be used."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, incluster_config, kube_config

from tests.certificates import SERVER, Authority
from visibility_api.kube.client import KubeClient
from visibility_api.kube.credentials import Credentials
from visibility_api.kube.errors import ClusterError, Unreachable
from visibility_api.kube.exec import execute

from .fake_apiserver import fake_apiserver
from .websocket_server import DEADLINE_S, ScriptedServer, execs, scripted_server


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
            await client.exchange("/", query=(), protocols=(), max_message_bytes=1, on_message=lambda _: True)
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
PLUGIN_API = "client.authentication.k8s.io/v1"
PLUGIN = f"{{command: /does/not/exist, apiVersion: {PLUGIN_API}}}"


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
async def test_a_kubeconfig_that_cannot_be_used_is_reported_without_its_secrets(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(ClusterError, match="kubeconfig") as raised:
        async with await KubeClient.connect(file, files_interval_s=0.0):
            pass
    assert str(file) in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


async def test_outside_a_cluster_the_message_names_the_missing_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="outside a cluster, set --kubeconfig"):
        await KubeClient.connect(None)


SERVING, RENEWED, USERS = Authority("serving"), Authority("renewed"), Authority("users")
ONE, TWO = USERS.issue("one"), USERS.issue("two")


async def test_a_kubeconfig_that_is_not_there_is_named_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ClusterError, match=r"^there is no kubeconfig .*/missing$"):
        await KubeClient.connect(tmp_path / "missing")
    assert caplog.records == []


def write_kubeconfig(directory: Path, port: int, *, user: str) -> Path:
    """A kubeconfig in a directory, with the CA in ca.crt beside it."""
    cluster = f"{{server: 'https://127.0.0.1:{port}', certificate-authority: ca.crt}}"
    file = directory / "kubeconfig"
    file.write_text(
        "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
    return file


CERTIFICATE_FILES = "client-certificate: user.crt, client-key: user.key"


def serving(directory: Path, authority: Authority = SERVING) -> ssl.SSLContext:
    """As kube-apiserver: a client certificate may be shown, and is checked if it is."""
    certificate = authority.issue("kube-apiserver", usages=[SERVER], hosts=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=USERS.pem)
    context.load_cert_chain(*certificate.write(directory, "server"))
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests as long as the connection is kept, then an exec."""
    while b"websocket" not in head:
        token = re.search(rb"Authorization: (.*)\r\n", head)
        body = token[1] if token else b"none"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
    await execs(head, reader, writer)


async def ask(client: KubeClient) -> None:
    """One of each way to ask."""
    await client.get("/version")
    async with client.lines("/watch", query=(), silence_s=DEADLINE_S):
        pass
    await execute(
        client, namespace="n", pod="p", container="c", argv=("cat",), max_bytes=100, timeout_s=DEADLINE_S
    )


def names(server: ScriptedServer) -> list[str]:
    """Whose certificate each connection showed."""
    return [dict(each.peer["subject"][0])["commonName"] if each.peer else "" for each in server.seen]


async def test_a_rotated_client_certificate_is_shown_from_the_next_request_on(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    ONE.write(tmp_path, "user")
    async with scripted_server(answer, tls=serving(tmp_path)) as server:
        file = write_kubeconfig(tmp_path, server.port, user=CERTIFICATE_FILES)
        async with await KubeClient.connect(file, files_interval_s=0.0) as client:
            await ask(client)
            await ask(client)
            before = len(server.seen)
            assert set(names(server)) == {"one"}
            TWO.write(tmp_path, "user")
            await ask(client)
            await ask(client)
    after = server.seen[before:]
    assert set(names(server)[before:]) == {"two"}
    assert not after[0].is_resumed  # no session of the old certificate


async def test_a_rotated_ca_is_believed_and_the_old_one_no_longer(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    async with AsyncExitStack() as stack:
        async with scripted_server(answer, tls=serving(tmp_path)) as old:
            file = write_kubeconfig(tmp_path, old.port, user="token: t0ken")
            client = await stack.enter_async_context(await KubeClient.connect(file, files_interval_s=0.0))
            await ask(client)
            before = len(old.seen)
            (tmp_path / "ca.crt").write_text(RENEWED.pem)
            with pytest.raises(Unreachable, match="is not accepted"):
                await client.get("/version")
            with pytest.raises(Unreachable, match="is not accepted"):
                await client.exchange("/", query=(), protocols=(), max_message_bytes=1, on_message=bool)
        assert len(old.seen) == before
        async with scripted_server(answer, tls=serving(tmp_path, RENEWED), port=old.port) as new:
            await ask(client)
        assert new.seen


async def test_a_half_written_pair_leaves_the_old_one_in_use_and_is_logged_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    certificate, key = ONE.write(tmp_path, "user")
    (tmp_path / "next").mkdir()
    next_certificate, next_key = TWO.write(tmp_path / "next", "user")
    async with scripted_server(answer, tls=serving(tmp_path)) as server:
        file = write_kubeconfig(tmp_path, server.port, user=CERTIFICATE_FILES)
        async with await KubeClient.connect(file, files_interval_s=0.0) as client:
            for break_it in (
                lambda: certificate.write_text(next_certificate.read_text()),  # without its key
                lambda: certificate.write_text(""),
                certificate.unlink,
            ):
                break_it()
                for _ in range(3):
                    await ask(client)
                told = capsys.readouterr().out
                assert told.count("not reloaded, the old ones stay in use") == 1
                assert "PRIVATE KEY" not in told
            assert set(names(server)) == {"one"}
            certificate.write_text(next_certificate.read_text())
            key.write_text(next_key.read_text())
            await ask(client)
            assert names(server)[-1] == "two"
            assert capsys.readouterr().out.count("credentials for kube-apiserver reloaded") == 1


@pytest.mark.parametrize("also", ["", ", token: inline"])
async def test_a_token_file_is_read_again_and_an_empty_one_leaves_the_old_token(
    tmp_path: Path, also: str
) -> None:
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    token = tmp_path / "token"
    token.write_text("first\n")
    async with scripted_server(answer, tls=serving(tmp_path)) as server:
        file = write_kubeconfig(tmp_path, server.port, user="tokenFile: token" + also)
        async with await KubeClient.connect(file, files_interval_s=0.0) as client:
            assert await client.get("/version") == b"Bearer first"
            token.write_text("")
            assert await client.get("/version") == b"Bearer first"
            token.write_text("second\n")
            assert await client.get("/version") == b"Bearer second"
    assert len(server.seen) == 1  # a token makes no connection anew


async def test_a_ca_that_is_half_written_holds_up_no_token(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    (tmp_path / "token").write_text("first")
    async with scripted_server(answer, tls=serving(tmp_path)) as server:
        file = write_kubeconfig(tmp_path, server.port, user="tokenFile: token")
        async with await KubeClient.connect(file, files_interval_s=0.0) as client:
            (tmp_path / "ca.crt").write_text(RENEWED.pem[:-40])
            (tmp_path / "token").write_text("second")
            assert await client.get("/version") == b"Bearer second"


async def test_a_plugin_runs_again_before_its_token_expires_and_one_that_fails_leaves_the_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    output, plugin = tmp_path / "output", tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\nexec cat {output}\n")
    plugin.chmod(0o700)

    def give(token: str, left: timedelta) -> None:
        expires = (datetime.now(UTC) + left).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"token": token, "expirationTimestamp": expires}
        credential = {"apiVersion": PLUGIN_API, "kind": "ExecCredential", "status": status}
        output.with_suffix(".next").write_text(json.dumps(credential))
        output.with_suffix(".next").rename(output)

    async with scripted_server(answer, tls=serving(tmp_path)) as server:

        async def wait_for(token: bytes) -> None:
            async with asyncio.timeout(DEADLINE_S):
                while await client.get("/version") != b"Bearer " + token:
                    pass  # each request is a look

        give("first", timedelta(minutes=1))
        file = write_kubeconfig(
            tmp_path, server.port, user=f"exec: {{command: {plugin}, apiVersion: {PLUGIN_API}}}"
        )
        async with await KubeClient.connect(file, files_interval_s=0.0) as client:
            assert await client.get("/version") == b"Bearer first"
            output.write_text("s3cr3t")
            async with asyncio.timeout(DEADLINE_S):
                while "the plugin failed" not in (told := capsys.readouterr().out):
                    assert await client.get("/version") == b"Bearer first"
            assert "s3cr3t" not in told
            give("second", timedelta(minutes=1))
            await wait_for(b"second")
            give("third", timedelta(hours=1))
            await wait_for(b"third")
            give("fourth", timedelta(hours=1))
            for _ in range(3):
                assert await client.get("/version") == b"Bearer third"


async def test_what_is_inline_in_a_kubeconfig_is_not_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def inline(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    certificate, key = ONE.write(tmp_path, "user")
    data = (
        f"client-certificate-data: {inline(certificate.read_text())}, "
        f"client-key-data: {inline(key.read_text())}"
    )
    async with scripted_server(answer, tls=serving(tmp_path)) as server:
        file = write_kubeconfig(tmp_path, server.port, user=f"{data}, {CERTIFICATE_FILES}")
        text = file.read_text()
        ca = "certificate-authority: ca.crt"
        file.write_text(text.replace(ca, f"{ca}, certificate-authority-data: {inline(SERVING.pem)}"))
        async with await KubeClient.connect(file, files_interval_s=0.0) as client:
            kube_config._cleanup_temp_files()  # where the loader has put it
            for each in (file, certificate, key):
                each.unlink()
            await ask(client)
    assert set(names(server)) == {"one"}
    assert capsys.readouterr().out == ""


async def test_the_ca_of_the_service_account_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "ca.crt").write_text(RENEWED.pem)
    async with scripted_server(answer, tls=serving(tmp_path)) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        async with await KubeClient.connect(None, files_interval_s=0.0) as client:
            with pytest.raises(Unreachable, match="is not accepted"):
                await client.get("/version")
            # The kubelet replaces a directory behind a link; a bundle of both is how a CA is rotated.
            (tmp_path / "next").write_text(RENEWED.pem + SERVING.pem)
            (tmp_path / "next").rename(tmp_path / "ca.crt")
            await ask(client)


def test_files_are_checked_every_30_s_at_most(tmp_path: Path) -> None:
    time_s = 0.0
    configuration = Configuration()
    configuration.ssl_ca_cert = str(tmp_path / "ca.crt")
    (tmp_path / "ca.crt").write_text(SERVING.pem)
    followed = Credentials(configuration, clock=lambda: time_s)
    first = followed.tls
    (tmp_path / "ca.crt").write_text(RENEWED.pem)
    time_s = 29.9
    followed.refresh()
    assert followed.tls is first
    time_s = 30.0
    followed.refresh()
    second = followed.tls
    assert second is not first
    time_s = 60.0
    followed.refresh()  # nothing has changed
    assert followed.tls is second
