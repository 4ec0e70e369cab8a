"""The page and its assets: where they are, what a browser may do with them, and how long it may keep them."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest

from tests.asgi import Answer
from tests.unit.api_shell import BASE, JANE, Shell
from visibility_api.app.page import Page, read_page
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes

SCRIPT = b"console.log('x');" * 200
INDEX = b'<!doctype html><link rel=stylesheet href="./assets/index-C0ffee12.css">\n' + (
    b'<script type="module" src="./assets/index-Ab_3-9xY.js"></script>' + b"<p></p>" * 200
)
ASSETS = {
    "index-Ab_3-9xY.js": SCRIPT,
    "index-C0ffee12.css": b"p { color: red }",
    "logo.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "font-12345678.woff2": b"wOF2",
}
PATHS = (f"{BASE}/dashboard", f"{BASE}/namespaces/team-a/dashboard")


def shell(**more: Any) -> Shell:
    return Shell(page=Page(INDEX, ASSETS), **more)


def references(answer: Answer) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]*)"', answer.text)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("end", ["", "/"])
async def test_its_assets_are_found_whether_its_address_ends_with_a_slash_or_not(path: str, end: str) -> None:
    """As a browser resolves them; no redirect leads from one to the other."""
    found = await shell().get(path + end)
    assert (found.status, found.header("content-type")) == (200, "text/html; charset=utf-8")
    folder = (path + end).rpartition("/")[0]
    addresses = [f"{folder}/{each.removeprefix('./')}" for each in references(found)]
    assert sorted(addresses) == [f"{path}/index-Ab_3-9xY.js", f"{path}/index-C0ffee12.css"]
    for each in addresses:
        assert (await shell().get(each)).status == 200


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("index-Ab_3-9xY.js", "text/javascript; charset=utf-8"),
        ("index-C0ffee12.css", "text/css; charset=utf-8"),
        ("logo.svg", "image/svg+xml"),
        ("font-12345678.woff2", "font/woff2"),
    ],
)
async def test_each_asset_has_the_type_that_browsers_want(name: str, content_type: str) -> None:
    found = await shell().get(f"{PATHS[0]}/{name}")
    assert (found.status, found.header("content-type"), found.body) == (200, content_type, ASSETS[name])


@pytest.mark.parametrize("target", [PATHS[0], f"{PATHS[1]}/", f"{PATHS[0]}/logo.svg"])
async def test_no_script_but_ours_runs_and_no_other_host_is_asked(target: str) -> None:
    found = await shell().get(target)
    assert found.header("content-security-policy") == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert found.header("x-content-type-options") == "nosniff"
    assert found.header("referrer-policy") == "no-referrer"
    assert found.header("cross-origin-resource-policy") == "same-origin"
    assert found.header("access-control-allow-origin") is None


async def test_only_what_changes_its_name_with_its_content_is_kept_unasked() -> None:
    forever = "private, max-age=31536000, immutable"
    for name, kept in (
        ("", "no-cache, private"),
        ("/logo.svg", "no-cache, private"),
        ("/index-Ab_3-9xY.js", forever),
        ("/font-12345678.woff2", forever),
    ):
        assert (await shell().get(PATHS[0] + name)).header("cache-control") == kept, name


@pytest.mark.parametrize("target", [PATHS[0], f"{PATHS[0]}/index-Ab_3-9xY.js"])
@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_what_a_browser_has_already_is_not_sent_again(target: str, coding: str) -> None:
    accept = ("Accept-Encoding", coding)
    first = await shell().get(target, accept)
    tag = first.header("etag")
    assert tag is not None
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await shell().get(target, accept, ("If-None-Match", sent))
        assert (again.status, again.body, again.header("etag")) == (304, b"", tag)
        assert again.header("cache-control") == first.header("cache-control")
    assert (await shell().get(target, accept, ("If-None-Match", '"other"'))).status == 200


async def test_each_form_has_a_tag_of_its_own_and_is_compressed_once() -> None:
    script = f"{PATHS[0]}/index-Ab_3-9xY.js"
    plain, packed = await shell().get(script), await shell().get(script, ("Accept-Encoding", "br, gzip"))
    assert (plain.header("content-encoding"), packed.header("content-encoding")) == (None, "gzip")
    assert gzip.decompress(packed.body) == plain.body == SCRIPT
    assert plain.header("etag") != packed.header("etag")
    assert plain.header("vary") == packed.header("vary") == "Accept-Encoding"
    font = await shell().get(f"{PATHS[0]}/font-12345678.woff2", ("Accept-Encoding", "gzip"))
    assert (font.header("content-encoding"), font.header("vary")) == (None, None)


async def test_the_two_spellings_of_its_address_are_told_apart_by_their_tags() -> None:
    with_slash, without = await shell().get(PATHS[0] + "/"), await shell().get(PATHS[0])
    assert with_slash.header("etag") != without.header("etag")


@pytest.mark.parametrize("target", [*PATHS, f"{PATHS[0]}/logo.svg"])
async def test_head_is_answered_as_get_is(target: str) -> None:
    head, get = await shell().get(target, method="HEAD"), await shell().get(target)
    assert head.status == 200
    for name in ("content-type", "content-length", "etag", "content-security-policy"):
        assert head.header(name) == get.header(name)


@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "nothing.js",
        "../index.html",
        "..",
        "%2e%2e/%2e%2e/py.typed",
        "..%2fpy.typed",
        "assets/logo.svg",
        "logo.svg/more",
        "logo.svg%0a",
        "logo.svg%00",
        "//logo.svg",
    ],
)
async def test_no_other_name_leads_to_a_file(name: str) -> None:
    found = await shell().get(f"{PATHS[0]}/{name}")
    assert (found.status, found.json()["reason"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (PATHS[0], ("list", "", "")),
        (f"{PATHS[0]}/", ("list", "", "")),
        (PATHS[1], ("list", "team-a", "")),
        (f"{PATHS[0]}/logo.svg", ("get", "", "logo.svg")),
        (f"{PATHS[1]}/logo.svg", ("get", "team-a", "logo.svg")),
    ],
)
async def test_list_and_get_on_dashboard_are_all_the_rights_it_takes(
    target: str, expected: tuple[str, str, str]
) -> None:
    """As kube-apiserver reads these addresses: RBAC has no pattern for subresources."""
    asked = shell()
    assert (await asked.get(target)).status == 200
    (attributes,) = asked.asked
    assert (attributes.verb, attributes.namespace, attributes.name) == expected
    assert (attributes.resource, attributes.subresource) == ("dashboard", "")


async def test_who_has_no_right_gets_nothing_of_it() -> None:
    refused = shell(verdict=AccessDenied(JANE, Attributes(verb="list", path="/x")))
    for target in (PATHS[0], f"{PATHS[0]}/logo.svg", f"{PATHS[0]}/nothing.js"):
        answer = await refused.get(target)
        assert (answer.status, answer.json()["reason"]) == (403, "Forbidden")


async def test_it_is_served_before_the_jobs_are_known() -> None:
    early = shell()
    early.is_synced = False
    assert (await early.get(PATHS[0])).status == 200


async def test_discovery_and_openapi_leave_it_out() -> None:
    """It is no object: who walks through all resources that can be listed would get HTML (decision 0019)."""
    for path in (BASE, "/apis", f"/openapi/v3{BASE}", "/openapi/v2"):
        assert "dashboard" not in (await shell().get(path)).text


async def test_without_a_built_page_there_is_no_such_path() -> None:
    assert (await Shell().get(PATHS[0])).status == 404


def test_a_file_of_unknown_type_is_refused_at_start() -> None:
    with pytest.raises(ValueError, match=r"notes\.txt has an unknown type"):
        Page(INDEX, {"notes.txt": b""})


async def test_the_page_of_this_package_can_be_served() -> None:
    built = read_page()
    if built is None:
        pytest.skip("no page is built into this package")
    served = Shell(page=built)
    page = await served.get(f"{PATHS[0]}/")
    assert page.status == 200
    assert references(page)
    for each in references(page):
        assert (await served.get(f"{PATHS[0]}/{each.removeprefix('./')}")).status == 200, each
