"""The plugin's own requests: what comes back whole, what is cut, and which library sends."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trainjob_cli.api import Api
from trainjob_cli.direct import Direct
from trainjob_client.connection import Connection
from trainjob_client.errors import ConfigError, UnreachableError
from trainjob_client.kubeconfig import Context
from trainjob_client.requests import Answer, Call
from trainjob_client.session import Session

OK = b"HTTP/1.1 200 OK\r\n"
ZIPPED = gzip.compress(b"one\ntwo\n", mtime=0)  # the same in each process of pytest
UNIT = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(ZIPPED)


class Server:
    """One connection after another gets its answers, one for each request, and is closed then."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sessions: list[Direct] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def answer(self, *connections: tuple[bytes, ...]) -> None:
        def serve() -> None:
            for answers in connections:
                link, _ = self._socket.accept()
                with link, link.makefile("rb") as lines:
                    for each in answers:
                        head = list(iter(lines.readline, b"\r\n"))
                        self.asked.append(b"".join(head).decode())
                        link.sendall(each)

        threading.Thread(target=serve, daemon=True).start()

    def session(self, **user: Any) -> Direct:
        made = Direct(Connection(Context({"server": f"http://127.0.0.1:{self.port}/below/"}, user)))
        self.sessions.append(made)
        return made

    def close(self) -> None:
        self._socket.close()
        for each in self.sessions:
            each.close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def of(session: Direct, path: str = "/apis", **more: Any) -> Any:
    return session.send(Call(path, **more))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"Content-Length: 8\r\n\r\none\ntwo\n", b"one\ntwo\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n", b"one\ntwo\n"),
        (UNIT + ZIPPED, b"one\ntwo\n"),
        (b"\r\none\ntwo\n", b"one\ntwo\n"),  # until it is closed
        (b"Content-Length: 9\r\n\r\none\ntwo\n", None),
        (b"Transfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n", None),
        (b"Transfer-Encoding: chunked\r\n\r\n9\r\none\n", None),
        (b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\none\ntwo\n", None),
        (b"Content-Encoding: gzip\r\n\r\n" + ZIPPED[:-9], None),
    ],
)
def test_an_answer_comes_whole_or_is_no_answer_and_a_stream_ends_at_the_cut(
    server: Server, body: bytes, expected: bytes | None
) -> None:
    server.answer((OK + body,), (OK + body,))
    session = server.session()
    lines: list[bytes] = []
    answer = of(session)
    if expected is not None:
        assert (answer.code, answer.body) == (200, expected)
    else:
        assert isinstance(answer, UnreachableError)
    session.close()
    try:
        with session.stream(Call("/apis")) as (_, found):
            lines += found
        assert expected is not None
    except UnreachableError:
        assert expected is None
    assert lines in ([b"one", b"two"], [b"one"], [])


def test_a_connection_is_kept_and_one_that_the_server_has_closed_is_made_anew(server: Server) -> None:
    empty = OK + b"Content-Length: 2\r\n\r\n{}"
    server.answer((empty, empty), (empty,))
    session = server.session(**{"as": "jane", "as-groups": ["a", "b"]})
    assert [of(session).body for _ in range(2)] == [b"{}", b"{}"]
    found = of(session, parameters=(("labelSelector", "team in (a,b)"), ("limit", "5")), accept="text/x")
    assert found == Answer(200, b"{}", {"content-length": "2"})
    head = server.asked[2].splitlines()
    assert head[0] == "GET /below/apis?labelSelector=team%20in%20%28a%2Cb%29&limit=5 HTTP/1.1"
    assert {
        "Accept: text/x",
        "Impersonate-User: jane",
        "Impersonate-Group: a",
        "Impersonate-Group: b",
    } <= set(head)


def test_who_does_not_answer_is_told_once_and_not_waited_for_without_end(server: Server) -> None:
    session = server.session()
    assert "timed out" in str(of(session, timeout_s=0.05))
    server.close()
    assert "refused" in str(of(session))


@pytest.mark.parametrize(
    ("address", "user"),
    [
        ("http://a..b", {}),
        ("http://127.0.0.1:PORT/\u00fc", {}),
        ("http://127.0.0.1:PORT", {"as": "jane\nX: y"}),
        ("http://127.0.0.1:PORT", {"as": "jane", "as-user-extra": {"\u00fc": ["a"]}}),
    ],
)
def test_what_no_request_can_say_is_a_fault_of_the_configuration(
    server: Server, address: str, user: dict[str, Any]
) -> None:
    server.answer((OK,))
    session = Direct(Connection(Context({"server": address.replace("PORT", str(server.port))}, user)))
    with pytest.raises(ConfigError, match="of no use"):
        of(session)


@pytest.mark.parametrize(
    ("cluster", "environment", "kind"),
    [
        ({}, {}, Direct),
        ({"proxy-url": "http://proxy:3128"}, {}, Session),
        ({}, {"HTTPS_PROXY": "http://proxy:3128"}, Session),
        ({}, {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example"}, Direct),
    ],
)
def test_httpx_is_loaded_for_a_proxy_alone(
    cluster: dict[str, Any],
    environment: dict[str, str],
    kind: type[Direct | Session],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = {
        "current-context": "one",
        "clusters": [{"name": "a", "cluster": {"server": "https://example", **cluster}}],
        "contexts": [{"name": "one", "context": {"cluster": "a"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    assert type(Api({"kubeconfig": str(tmp_path / "config")}).session) is kind


def test_the_list_loads_no_library_that_it_does_not_need(server: Server) -> None:
    table: dict[str, Any] = {"columnDefinitions": [], "rows": [], "metadata": {}}
    body = json.dumps(table).encode()
    server.answer((OK + b"Content-Length: %d\r\n\r\n" % len(body) + body,))
    code = (
        "import sys; from trainjob_cli.main import main;"
        f"print(main(['-s', 'http://127.0.0.1:{server.port}', '-A']));"
        "print({'httpx', 'httpcore', 'pydantic', 'asyncio', 'tempfile'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["0", "set()"], done.stderr
