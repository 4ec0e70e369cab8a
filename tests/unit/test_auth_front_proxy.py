"""What the front proxy's headers mean, once its certificate is believed (A4 to A10)."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from tests.certificates import Authority
from visibility_api.auth.certificates import CaPool, Peer
from visibility_api.auth.errors import CredentialRejected
from visibility_api.auth.front_proxy import FrontProxy, ProxyHeaders
from visibility_api.auth.identity import Identity

CA = Authority("front-proxy")
POOL = CaPool(CA.pem, name="requestheader-client")
PEER = Peer(chain=CA.issue("front-proxy-client").chain)
NAMES = ProxyHeaders(
    user=(b"x-remote-user",), group=(b"x-remote-group",), extra_prefixes=(b"x-remote-extra-",)
)


def identify(*headers: tuple[str, str], names: ProxyHeaders = NAMES) -> Identity | None:
    """As uvicorn hands headers over: names in lower case, values as bytes."""
    proxy = FrontProxy(POOL, names, ["front-proxy-client"])
    return proxy.identify(PEER, [(k.lower().encode(), v.encode()) for k, v in headers])


def extra(name: str, *values: str) -> dict[str, tuple[str, ...]]:
    found = identify(("X-Remote-User", "u"), *((f"X-Remote-Extra-{name}", value) for value in values))
    assert found is not None
    return dict(found.extra)


def test_first_configured_user_header_with_a_value_counts() -> None:
    """A6."""
    names = ProxyHeaders(user=(b"x-first", b"x-second"))
    found = identify(("X-Second", "b"), ("X-First", ""), ("X-First", "a"), names=names)
    assert found is not None
    assert found.user == "a"
    found = identify(("X-Second", "b"), ("X-First", ""), names=names)
    assert found is not None
    assert found.user == "b"


def test_proxy_that_names_nobody_has_no_opinion() -> None:
    """A6."""
    assert identify() is None
    assert identify(("X-Remote-User", ""), ("X-Remote-Group", "system:masters")) is None
    assert identify(("X-Remote-User-2", "u")) is None


def test_peer_without_a_certificate_has_no_opinion() -> None:
    """A5."""
    proxy = FrontProxy(POOL, NAMES, [])
    assert proxy.identify(Peer(), [(b"x-remote-user", b"root")]) is None


def test_every_group_header_counts_in_order_and_is_never_split() -> None:
    """A7, A14."""
    found = identify(
        ("X-Remote-Group", "a,b"), ("X-Remote-User", "u"), ("X-Remote-Group", ""), ("x-remote-group", "c; d")
    )
    assert found is not None
    assert found.groups == ("a,b", "c; d", "system:authenticated")


def test_group_of_the_unauthenticated_is_kept_as_it_is() -> None:
    """A14."""
    for group in ("system:unauthenticated", "system:authenticated"):
        found = identify(("X-Remote-User", "u"), ("X-Remote-Group", group))
        assert found is not None
        assert found.groups == (group,)
    found = identify(("X-Remote-User", "system:anonymous"))
    assert found is not None
    assert found.groups == ()


def test_uid_is_read_only_from_a_configured_header() -> None:
    """A8."""
    headers = (("X-Remote-User", "u"), ("X-Remote-Uid", "7"))
    found = identify(*headers)
    assert found is not None
    assert found.uid == ""
    found = identify(*headers, names=ProxyHeaders(user=(b"x-remote-user",), uid=(b"x-remote-uid",)))
    assert found is not None
    assert found.uid == "7"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Authentication.kubernetes.io%2Fcredential-Id", "authentication.kubernetes.io/credential-id"),
        ("scopes", "scopes"),
        ("a+b", "a+b"),
        ("a%2Bb", "a+b"),
        ("a%20b", "a b"),
        ("100%", "100%"),
        ("a%2", "a%2"),
        ("%zz%2F", "%zz%2f"),
        ("%2525", "%25"),
        ("%C3%A9", "é"),
        ("", ""),
    ],
)
def test_extra_key_is_decoded_as_go_does(name: str, key: str) -> None:
    """A9."""
    assert extra(name, "1", "", "2,3") == {key: ("1", "", "2,3")}


def test_extras_are_sorted_by_key_whatever_their_order() -> None:
    """Or one user would be two to the access review's cache."""
    headers = [("X-Remote-User", "u"), ("X-Remote-Extra-B", "1"), ("X-Remote-Extra-A", "2")]
    assert identify(*headers) == identify(*reversed(headers))


def test_header_that_is_not_utf_8_is_rejected() -> None:
    proxy = FrontProxy(POOL, NAMES, [])
    for name in (b"x-remote-user", b"x-remote-group", b"x-remote-extra-a"):
        with pytest.raises(CredentialRejected, match="UTF-8"):
            proxy.identify(PEER, [(b"x-remote-user", b"u"), (name, b"\xff")][::-1])
    with pytest.raises(CredentialRejected, match="UTF-8"):
        proxy.identify(PEER, [(b"x-remote-user", b"u"), (b"x-remote-extra-%ff", b"1")])


def test_certificate_of_another_ca_is_rejected() -> None:
    """A4."""
    stranger = Peer(chain=Authority("front-proxy").issue("front-proxy-client").chain)
    with pytest.raises(CredentialRejected, match="requestheader-client CA"):
        FrontProxy(POOL, NAMES, []).identify(stranger, [(b"x-remote-user", b"root")])


def test_empty_list_of_names_allows_any_name_of_that_ca() -> None:
    """A4."""
    peer = Peer(chain=CA.issue("anything").chain)
    found = FrontProxy(POOL, NAMES, []).identify(peer, [(b"x-remote-user", b"u")])
    assert found is not None
    with pytest.raises(CredentialRejected, match="common name"):
        FrontProxy(POOL, NAMES, ["front-proxy-client"]).identify(peer, [(b"x-remote-user", b"u")])


def test_same_headers_give_the_same_object() -> None:
    """The access review's cache is then found by identity, not by comparing."""
    proxy = FrontProxy(POOL, NAMES, [])
    headers = [(b"accept", b"*/*"), (b"x-remote-user", b"u")]
    assert proxy.identify(PEER, headers) is proxy.identify(PEER, [*headers, (b"audit-id", b"1")])


def test_what_is_remembered_of_users_is_bounded() -> None:
    proxy = FrontProxy(POOL, NAMES, [])
    for number in range(3000):
        found = proxy.identify(PEER, [(b"x-remote-user", b"%d" % number)])
        assert found is not None
        assert found.user == str(number)
    assert proxy._cached.cache_info().currsize <= 1024
    proxy = FrontProxy(POOL, NAMES, [])
    assert proxy.identify(PEER, [(b"x-remote-user", b"u"), (b"x-remote-group", b"g" * 20_000)]) is not None
    assert proxy._cached.cache_info().currsize == 0


keys = st.text(min_size=1, max_size=20).map(lambda text: text.lower()).filter(lambda t: t == t.lower())
values = st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(keys, st.lists(values, min_size=1, max_size=3), max_size=4), st.lists(values))
def test_what_a_proxy_encodes_comes_back(extras: dict[str, list[str]], groups: list[str]) -> None:
    """A7, A9: the escaping of client-go's round tripper and this decoding are inverse."""
    headers = [("X-Remote-User", "u"), *(("X-Remote-Group", group) for group in groups)]
    headers += [(f"X-Remote-Extra-{quote(k, safe='')}", v) for k, vs in extras.items() for v in vs]
    found = identify(*headers)
    assert found is not None
    assert found.extra == tuple(sorted((k, tuple(vs)) for k, vs in extras.items()))
    expected = tuple(group for group in groups if group)
    assert found.groups[: len(expected)] == expected


@given(st.lists(st.tuples(st.binary(max_size=30).map(bytes.lower), st.binary(max_size=30))))
def test_any_bytes_are_an_identity_nobody_or_a_rejection(headers: list[tuple[bytes, bytes]]) -> None:
    proxy = FrontProxy(POOL, NAMES, [])
    prefixed = [(b"x-remote-extra-" + name, value) for name, value in headers]
    try:
        found = proxy.identify(PEER, [*headers, *prefixed])
    except CredentialRejected:
        return
    assert found is None or found.user
