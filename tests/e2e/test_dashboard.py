"""The page through the aggregator and `kubectl proxy`, with the rights of whoever looks and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.processes import PATIENCE_S
from tests.e2e.visibility_server import PREFIX
from tests.e2e.workspace import Workspace
from visibility_api.app.page import read_page

pytestmark = pytest.mark.skipif(read_page() is None, reason="no page is built into this package")

GZIP = {"Accept-Encoding": "gzip"}


@pytest.fixture(scope="module")
def browser(shared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """What a browser of alice's sees of her namespace, behind her own `kubectl proxy`."""
    with (
        shared.alice.proxied(tmp_path_factory.mktemp("kubectl")) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client,
    ):
        yield client


def _assets(page: httpx.Response) -> list[httpx.URL]:
    """The addresses of scripts and styles, as a browser resolves them."""
    found = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert found, page.text
    return [page.url.join(each) for each in found]


@pytest.mark.parametrize("end", ["", "/"])
def test_a_viewer_of_one_namespace_sees_the_page_of_it_behind_kubectl_proxy(
    shared: Workspace, browser: httpx.Client, end: str
) -> None:
    page = browser.get(f"{PREFIX}/namespaces/{shared.name}/dashboard{end}")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


def test_what_protects_the_page_comes_through_kube_apiserver(
    shared: Workspace, browser: httpx.Client
) -> None:
    page = browser.get(f"{PREFIX}/namespaces/{shared.name}/dashboard", headers=GZIP)
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert page.headers.get_list("content-security-policy") == [policy]
    assert page.headers.get_list("x-content-type-options") == ["nosniff"]
    assert page.headers.get_list("referrer-policy") == ["no-referrer"]
    assert "access-control-allow-origin" not in page.headers
    assert "no-cache" in page.headers["cache-control"]
    assert page.headers["etag"]
    for address in (page.url, *_assets(page)):
        head, get = (browser.request(method, address, headers=GZIP) for method in ("HEAD", "GET"))
        assert (head.status_code, head.headers["etag"], head.content) == (200, get.headers["etag"], b"")


def test_whoever_is_logged_in_gets_the_page_and_no_data_with_it(
    shared: Workspace, browser: httpx.Client
) -> None:
    """To a user without rights the page says which one is missing (decision 46)."""
    page = browser.get(f"{PREFIX}/namespaces/{shared.name}/dashboard")
    for path in (f"{PREFIX}/dashboard", page.url.path, *(each.path for each in _assets(page))):
        assert shared.bob.api.raw("GET", path).status_code == 200, path
    for path in (f"{PREFIX}/trainjobs", shared.collection):
        assert shared.bob.api.raw("GET", path).status_code == 403, path


def test_without_a_login_there_is_no_page(shared: Workspace) -> None:
    nobody = {"Impersonate-User": "system:anonymous", "Impersonate-Group": "system:unauthenticated"}
    answer = shared.admin.api.raw("GET", f"{PREFIX}/dashboard", headers=nobody)
    assert answer.status_code == 403
