"""Which cluster, user and namespace a kubeconfig or a pod's account means, and with which credentials."""

from __future__ import annotations

import base64
import json
import os
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.certificates import Authority
from trainjob_client import Client, ConfigError, kubeconfig
from trainjob_client.connection import Connection
from trainjob_client.credentials import CredentialSource
from trainjob_client.kubeconfig import Context

SERVER = {"server": "https://example"}


def write(path: Path, **parts: Any) -> Path:
    """A kubeconfig; `one` is a whole context of that name."""
    document: dict[str, Any] = {"current-context": parts.get("current", "")}
    for kind in ("clusters", "users", "contexts"):
        named = parts.get(kind, {}).items()
        document[kind] = [{"name": name, kind[:-1]: content} for name, content in named]
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(autouse=True)
def _nothing_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_of_several_files_the_first_that_names_a_thing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "first", clusters={"a": SERVER}, users={"u": {"token": "mine"}})
    second = write(
        tmp_path / "second",
        current="one",
        clusters={"a": {"server": "https://other"}},
        users={"u": {"token": "theirs"}},
        contexts={"one": {"cluster": "a", "user": "u", "namespace": "team-a"}, "two": {"cluster": "a"}},
    )
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{tmp_path / 'missing'}{os.pathsep}{second}")
    found = kubeconfig.load()
    assert (found.cluster["server"], found.user["token"], found.namespace) == (
        "https://example",
        "mine",
        "team-a",
    )
    assert (kubeconfig.load(context="two").namespace, kubeconfig.load(context="two").user) == ("default", {})
    assert kubeconfig.context_names() == ["one", "two"]
    assert "mine" not in repr(found)


def test_files_are_relative_to_the_kubeconfig_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/ca.crt").write_bytes(b"ca")
    file = write(
        tmp_path / "config",
        current="one",
        clusters={"a": {**SERVER, "certificate-authority": "pki/ca.crt"}},
        contexts={"one": {"cluster": "a"}},
    )
    assert kubeconfig.load(file).cluster["certificate-authority"] == str(tmp_path / "pki/ca.crt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "config")
    found = kubeconfig.load()
    assert (found.cluster["certificate-authority"], found.files) == (str(tmp_path / "pki/ca.crt"), [file])


def test_in_a_pod_the_service_account_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("team-a")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = kubeconfig.load(service_account=tmp_path)
    assert (found.cluster["server"], found.namespace) == ("https://[fd00::1]:6443", "team-a")
    now = [0.0]
    credentials = CredentialSource(found, lambda: now[0])
    assert credentials.current().authorization == "Bearer first"
    (tmp_path / "token").write_text("second")
    assert credentials.current().authorization == "Bearer first"
    now[0] = 61.0
    assert credentials.current().authorization == "Bearer second"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "No current context is set"),
        ({"current": "one"}, "has no context 'one'; it has: none"),
        ({"current": "one", "contexts": {"one": {"cluster": "a"}}}, "has no cluster 'a'"),
        ({"current": "one", "contexts": {"one": {"cluster": "a"}}, "clusters": {"a": {}}}, "names no server"),
        (
            {"current": "one", "contexts": {"one": {"cluster": "a", "user": "u"}}, "clusters": {"a": SERVER}},
            "has no user 'u'",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kubeconfig.load(write(tmp_path / "config", **parts))


@pytest.mark.parametrize("text", ["- a", "a: [", "clusters: [{name: a, cluster: 5}]"])
def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError):
        kubeconfig.load(tmp_path / "config")


def test_without_any_kubeconfig_the_message_says_where_it_was_looked_for() -> None:
    with pytest.raises(ConfigError, match=r"No kubeconfig at .*/home/.kube/config, and this is no pod"):
        kubeconfig.load()


# --- credentials


def source(user: dict[str, Any], **more: Any) -> CredentialSource:
    return CredentialSource(
        Context({**SERVER, "certificate-authority-data": "Y2E="}, user, **more), lambda: 1000.0
    )


def plugin(directory: Path, status: dict[str, Any] | str, **more: Any) -> dict[str, Any]:
    """A credential plugin that keeps what it was told in `told`, and counts its runs in `runs`."""
    printed = json.dumps({"status": status}) if isinstance(status, dict) else status
    script = directory / "plugin"
    script.write_text(
        f"#!{sys.executable}\nimport os, pathlib\n"
        f"here = pathlib.Path({str(directory)!r})\n"
        "(here / 'told').write_text(os.environ['KUBERNETES_EXEC_INFO'] + os.environ.get('EXTRA', ''))\n"
        "with (here / 'runs').open('a') as runs: runs.write('.')\n"
        f"print({printed!r})\n"
    )
    script.chmod(0o700)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "./plugin", "_directory": str(directory), **more}}


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "jane", "password": "secret"}, "Basic amFuZTpzZWNyZXQ="),
        ({}, None),
    ],
)
def test_what_a_user_is_known_by(user: dict[str, Any], authorization: str | None) -> None:
    assert source(user).current().authorization == authorization


@pytest.mark.parametrize("token", ["SECRET\nmore", "SECRÉT", "SECRET\x7f"])
@pytest.mark.parametrize("way", ["token", "tokenFile", "exec", "auth-provider"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(
    tmp_path: Path, way: str, token: str
) -> None:
    (tmp_path / "file").write_text(token)
    user = {
        "token": {"token": token},
        "tokenFile": {"tokenFile": str(tmp_path / "file")},
        "exec": plugin(tmp_path, {"token": token}),
        "auth-provider": {"auth-provider": {"name": "oidc", "config": {"id-token": token}}},
    }[way]
    with pytest.raises(ConfigError, match="characters that no token has") as raised:
        source(user).current()
    assert "SECR" not in str(raised.value)


def test_a_line_feed_at_the_end_of_a_token_does_not_count() -> None:
    assert source({"token": "abc\n"}).current().authorization == "Bearer abc"


def test_credentials_are_sent_over_https_only(tmp_path: Path) -> None:
    for user in ({"token": "SECRET"}, {"username": "jane"}, plugin(tmp_path, {"token": "SECRET"})):
        connection = Connection(Context({"server": "http://example"}, user))
        assert dict(connection.headers("application/json")) == {"Accept": "application/json"}
    assert not (tmp_path / "runs").exists()


def test_a_credential_plugin_is_told_of_the_cluster_and_run_again_when_its_token_has_ended(
    tmp_path: Path,
) -> None:
    user = plugin(
        tmp_path,
        {"token": "abc", "expirationTimestamp": "1970-01-01T00:20:00Z"},
        provideClusterInfo=True,
        interactiveMode="Never",
        env=[{"name": "EXTRA", "value": " more"}],
    )
    found = source(user)
    assert found.is_due
    assert [found.current().authorization for _ in range(3)] == ["Bearer abc"] * 3
    assert (tmp_path / "runs").read_text() == "."
    told, more = (tmp_path / "told").read_text().rsplit(" ", 1)
    assert json.loads(told)["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://example", "certificate-authority-data": "Y2E="},
    }
    assert more == "more"
    found._now = lambda: 1200.0
    found.current()
    assert (tmp_path / "runs").read_text() == ".."
    found.renew(found.renewals)
    found.current()
    assert (tmp_path / "runs").read_text() == "..."


def test_a_credential_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"clientCertificateData": "chain", "clientKeyData": "key"})
    assert source(user).current().certificate == (b"chain", b"key")


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        (
            {"command": "no-such-plugin", "installHint": "Get it."},
            {},
            "cannot be run: No such file.* Get it.",
        ),
        ({"command": "false"}, {}, "ended with exit code 1"),
        ({"apiVersion": "v0"}, {}, "version 'v0' are not known"),
        ({}, "no JSON", "is no ExecCredential"),
        ({}, {}, "neither a token nor a certificate"),
        ({"interactiveMode": "Always"}, {}, "needs a terminal"),
    ],
)
def test_a_credential_plugin_that_fails_is_named(
    tmp_path: Path, more: dict[str, Any], status: dict[str, Any] | str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        source(plugin(tmp_path, status, **more)).current()


def jwt(end: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": end}).encode()).decode().rstrip("=")
    return f"e30.{claims}.x"


def test_an_id_token_counts_until_it_ends_and_kubectl_renews_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"

    def provider(end: float) -> dict[str, Any]:
        return {"auth-provider": {"name": "oidc", "config": {"id-token": jwt(end)}}}

    def kubeconfig_until(end: float, path: Path) -> Path:
        contexts = {"one": {"cluster": "a", "user": "u"}}
        return write(
            path, current="one", clusters={"a": SERVER}, users={"u": provider(end)}, contexts=contexts
        )

    fresh = source(provider(2000.0))
    assert fresh.current().authorization == f"Bearer {jwt(2000.0)}"
    kubeconfig_until(900.0, file)
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = source(provider(900.0), name="one", user_name="u", files=[file])
    with pytest.raises(ConfigError, match="has ended, and kubectl has not renewed it"):
        ended.current()
    renewed = kubeconfig_until(5000.0, tmp_path / "renewed")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n/bin/cp {renewed} {file}\n")
    kubectl.chmod(0o700)
    assert ended.current().authorization == f"Bearer {jwt(5000.0)}"


def test_kubectl_may_renew_a_user_whose_context_is_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def users(end: float, name: str) -> Path:
        config = {"id-token": jwt(end)}
        return write(tmp_path / name, users={"u": {"auth-provider": {"name": "oidc", "config": config}}})

    contexts = {"one": {"cluster": "a", "user": "u"}}
    first = write(tmp_path / "first", current="one", clusters={"a": SERVER}, contexts=contexts)
    second, renewed = users(900.0, "second"), users(5000.0, "renewed")
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{second}")
    monkeypatch.setenv("PATH", str(tmp_path))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n/bin/cp {renewed} {second}\n")
    kubectl.chmod(0o700)
    found = CredentialSource(kubeconfig.load(), lambda: 1000.0)
    assert found.current().authorization == f"Bearer {jwt(5000.0)}"

    def hang(command: list[str], timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    users(900.0, "second")
    monkeypatch.setattr("subprocess.run", hang)
    with pytest.raises(ConfigError, match="kubectl has not renewed it"):
        CredentialSource(kubeconfig.load(), lambda: 1000.0).current()


# --- requests


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxy"),
    [
        ("https://10.1.2.3:6443", "", "http://proxy:3128"),
        ("https://10.1.2.3:6443", "10.0.0.0/8", None),
        ("https://10.1.2.3:6443", "192.168.0.0/16, 10.1.2.3", None),
        ("https://10.1.2.3:6443", "10.1.2.3:443,10.1.2.4,10.0.0.0/x", "http://proxy:3128"),
        ("https://[fd00::1]:6443", "fd00::/8", None),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", None),
        ("https://[fd00::1]:6443", "fd00::1", None),
        ("https://[fd00::1]:6443", "fd00::2,10.0.0.0/8", "http://proxy:3128"),
        ("https://api.example.com", "example.com", None),
        ("https://api.example.com", ".example.com:443", None),
        ("https://api.example.com", "*.Example.com", None),
        ("https://api.example.com", "*", None),
        ("https://example.com", ".example.com", "http://proxy:3128"),
        ("https://anexample.com", "example.com", "http://proxy:3128"),
        ("https://localhost:6443", "", None),
        ("https://127.0.0.5:6443", "", None),
        ("http://api.example.com", "", None),
    ],
)
def test_the_proxy_of_the_environment_is_gos(
    monkeypatch: pytest.MonkeyPatch, server: str, no_proxy: str, proxy: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    arguments = Connection(Context({"server": server})).arguments()
    assert (arguments["proxy"], arguments["trust_env"]) == (proxy, False)


@pytest.mark.parametrize("server", ["example:6443", "https://", "https://example:port"])
def test_a_server_that_is_no_address_is_named(server: str) -> None:
    with pytest.raises(ConfigError, match="of the kubeconfig is no address") as raised:
        Client(connection=Connection(Context({"server": server}))).list_jobs()
    assert server in str(raised.value)


def test_a_private_key_is_in_no_file_that_others_read_or_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Authority("clients").issue("jane")
    chain, key = pair.write(tmp_path, "jane")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    modes: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(self: ssl.SSLContext, certfile: str, **more: Any) -> None:
        modes.append(stat.S_IMODE(os.stat(certfile).st_mode))
        load(self, certfile, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    connection = Connection(Context(SERVER, {"client-certificate": str(chain), "client-key": str(key)}))
    assert connection.prepare()
    assert not connection.prepare()
    assert modes == [0o600]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_impersonation_proxy_and_the_name_for_tls_are_as_the_kubeconfig_says() -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"scopes": ["x"]}}
    cluster = {**SERVER, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    connection = Connection(Context(cluster, user))
    assert connection.headers("application/json")[1:] == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes", "x"),
        ("Authorization", "Bearer t"),
    ]
    assert connection.extensions == {"sni_hostname": "kubernetes"}
    assert connection.arguments()["proxy"] == "http://proxy:3128"
