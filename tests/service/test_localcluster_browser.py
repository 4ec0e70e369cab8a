"""The demo's address for a browser: who may use it, and that what comes back is the API server's answer."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from localcluster.demo.browser import API, serving_browser
from localcluster.machinery.client import ApiClient
from tests.certificates import SERVER, Authority

PAGE = f"{API}/namespaces/team-a/dashboard"


class Cluster:
    """What it was asked; it answers with a page, a watch that goes on, or 404."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.more = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.raw_path, dict(request.headers)))
        if request.path == PAGE:
            headers = {"ETag": '"1"', "Content-Security-Policy": "default-src 'none'", "X-A": "1"}
            if request.headers.get("If-None-Match") == '"1"':
                return web.Response(status=304, headers=headers)
            return web.Response(text="<p>page</p>", content_type="text/html", headers=headers)
        if "watch" not in request.query:
            return web.Response(status=404, text="{}")
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b'{"type":"ADDED"}\n')
        await self.more.wait()
        await stream.write(b'{"type":"MODIFIED"}\n')
        return stream


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def address(cluster: Cluster, tmp_path: Path) -> AsyncIterator[str]:
    authority = Authority("cluster")
    pair = authority.issue("server", usages=[SERVER], hosts=["127.0.0.1"]).write(tmp_path, "server")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*pair)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", cluster.handle)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving).start()
    server = f"https://127.0.0.1:{runner.addresses[0][1]}"
    context = ssl.create_default_context(cadata=authority.pem)
    async with ApiClient(server, context, "alices") as alice, serving_browser(alice, "team-a") as found:
        yield found
    await runner.cleanup()


@pytest.fixture
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_its_address_leads_to_the_page_as_the_user(
    address: str, browser: aiohttp.ClientSession, cluster: Cluster
) -> None:
    async with browser.get(address) as page:
        assert (page.status, await page.text()) == (200, "<p>page</p>")
        assert page.url.path == f"{URL(address).path}{PAGE[1:]}"
        assert page.headers["Content-Security-Policy"] == "default-src 'none'"
        location = page.url
    (asked,) = cluster.asked
    assert asked[2]["Authorization"] == "Bearer alices"
    assert "Cookie" not in asked[2]
    async with browser.get(location, headers={"If-None-Match": '"1"'}) as again:
        assert again.status == 304
    async with browser.head(location) as head:
        assert (head.status, await head.read()) == (200, b"")


async def test_a_watch_comes_as_it_goes(
    address: str, browser: aiohttp.ClientSession, cluster: Cluster
) -> None:
    query = "watch=1&labelSelector=a%3Db%2Fc"
    async with browser.get(URL(f"{address}{API[1:]}/trainjobs?{query}", encoded=True)) as watch:
        assert json.loads(await watch.content.readline()) == {"type": "ADDED"}
        cluster.more.set()
        assert json.loads(await watch.content.readline()) == {"type": "MODIFIED"}
    assert cluster.asked[0][1] == f"{API}/trainjobs?{query}"  # as it was sent


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
async def test_a_website_whose_name_resolves_to_this_machine_gets_nothing(
    address: str, browser: aiohttp.ClientSession, cluster: Cluster, host: str
) -> None:
    """DNS rebinding: the browser then sends the website's name as Host."""
    sent = {"Host": host.format(port=URL(address).port)}
    async with browser.get(address, headers=sent, allow_redirects=False) as refused:
        assert refused.status == 403
        assert URL(address).path.strip("/") not in str(refused.headers) + await refused.text()
    assert cluster.asked == []


async def test_localhost_is_its_own_name(address: str, browser: aiohttp.ClientSession) -> None:
    sent = {"Host": f"localhost:{URL(address).port}"}
    async with browser.get(address, headers=sent, allow_redirects=False) as found:
        assert found.status == 302


@pytest.mark.parametrize("path", ["/", PAGE, "/x/", "//", "/{cut}/", "/{secret}x/", "/%2e%2e/{secret}/"])
async def test_who_does_not_know_the_secret_gets_nothing(
    address: str, browser: aiohttp.ClientSession, cluster: Cluster, path: str
) -> None:
    """Other users of this machine reach the port too."""
    secret = URL(address).path.strip("/")
    target = path.format(secret=secret, cut=secret[:-1])
    url = URL(str(URL(address).origin()) + target, encoded=True)
    async with browser.get(url, allow_redirects=False) as refused:
        assert refused.status == 403
    assert cluster.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_it_only_reads(
    address: str, browser: aiohttp.ClientSession, cluster: Cluster, method: str
) -> None:
    async with browser.request(method, f"{address}{API[1:]}/trainjobs") as refused:
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
        assert "Access-Control-Allow-Origin" not in refused.headers
    assert cluster.asked == []


async def test_each_run_has_a_secret_of_its_own(address: str, cluster: Cluster) -> None:
    nobody = ApiClient("https://127.0.0.1:1", ssl.create_default_context())
    async with serving_browser(nobody, "team-a") as another:
        assert URL(another).path != URL(address).path
        assert len(URL(another).path.strip("/")) >= 20
