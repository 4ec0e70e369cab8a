"""The ConfigMap that says whose certificates count: read, followed, and never believed half (A11, A12)."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.certificates import Authority
from visibility_api.auth.certificates import Peer
from visibility_api.auth.errors import CredentialRejected, TrustForbidden, TrustUnusable
from visibility_api.auth.identity import Identity
from visibility_api.auth.request_header_config import ConfigMap, RequestHeaderConfig, Trust
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.kube.errors import ApiError, ClusterError, Unreachable

CLIENTS, PROXIES = Authority("kubernetes"), Authority("front-proxy")
PEER = Peer(chain=PROXIES.issue("front-proxy-client").chain)
DATA = {
    "client-ca-file": CLIENTS.pem,
    "requestheader-client-ca-file": PROXIES.pem,
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-allowed-names": '["front-proxy-client"]',
}


def config_map(data: dict[str, str] | None, name: str = "extension-apiserver-authentication") -> ConfigMap:
    found = ConfigMap(data=data)
    found.metadata.name = name
    return found


def loaded(data: dict[str, str] | None = None) -> RequestHeaderConfig:
    config = RequestHeaderConfig()
    config.apply(config_map(DATA if data is None else data))
    return config


def identify(config: RequestHeaderConfig, *headers: tuple[bytes, bytes]) -> Identity | None:
    assert config.trust.front_proxy is not None
    return config.trust.front_proxy.identify(PEER, headers or ((b"x-remote-user", b"jane"),))


class FakeReader:
    def __init__(self, answer: bytes | ClusterError) -> None:
        self.answer = answer
        self.paths: list[str] = []

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        self.paths.append(path)
        if isinstance(self.answer, ClusterError):
            raise self.answer
        return self.answer


def test_all_keys_are_taken_over() -> None:
    """A11."""
    found = identify(
        loaded(),
        (b"x-remote-user", b"jane"),
        (b"x-remote-group", b"dev"),
        (b"x-remote-uid", b"7"),
        (b"x-remote-extra-a", b"1"),
    )
    assert found == Identity(
        user="jane", groups=("dev", "system:authenticated"), uid="7", extra=(("a", ("1",)),)
    )
    assert loaded().trust.client_certificates is not None


def test_absent_ca_switches_its_way_of_logging_in_off() -> None:
    """A11."""
    trust = loaded({k: v for k, v in DATA.items() if k != "requestheader-client-ca-file"}).trust
    assert (trust.front_proxy is None, trust.client_certificates is None) == (True, False)
    trust = loaded({k: v for k, v in DATA.items() if k != "client-ca-file"}).trust
    assert (trust.front_proxy is None, trust.client_certificates is None) == (False, True)
    assert loaded({}).trust.ca_pem == ""


def test_missing_lists_are_empty_lists() -> None:
    """A11: a proxy whose user header is unknown speaks for nobody."""
    assert identify(loaded({"requestheader-client-ca-file": PROXIES.pem})) is None


def test_handshake_pool_holds_both_cas() -> None:
    pem = loaded().trust.ca_pem
    assert CLIENTS.pem in pem
    assert PROXIES.pem in pem


@pytest.mark.parametrize(
    "change",
    [
        {"requestheader-client-ca-file": ""},
        {"requestheader-client-ca-file": "no certificate"},
        {"requestheader-username-headers": "X-Other"},
        {"requestheader-username-headers": '{"a":1}'},
        {"requestheader-username-headers": '["X-Other", 1]'},
        {"requestheader-username-headers": '["X-Other", ""]'},
        {"requestheader-extra-headers-prefix": '[""]'},
        {"requestheader-group-headers": '["X-Ünix"]'},
        {"requestheader-uid-headers": '["X Y"]'},
        {"requestheader-allowed-names": "null"},
    ],
    ids=str,
)
def test_part_that_is_invalid_keeps_its_last_good_value(change: dict[str, str]) -> None:
    """A12."""
    config = loaded()
    config.apply(config_map(DATA | change))
    found = identify(config)
    assert found is not None
    assert found.user == "jane"


def test_good_part_is_taken_over_beside_a_bad_one() -> None:
    """A12: each has its own last good value."""
    config = loaded()
    other = Authority("next")
    config.apply(config_map(DATA | {"requestheader-client-ca-file": other.pem, "client-ca-file": "junk"}))
    with pytest.raises(CredentialRejected):
        identify(config)
    assert CLIENTS.pem in config.trust.ca_pem
    assert other.pem in config.trust.ca_pem


def test_invalid_lists_at_start_leave_the_front_proxy_off() -> None:
    config = loaded(DATA | {"requestheader-username-headers": "X-Remote-User"})
    assert config.trust.front_proxy is None
    assert config.trust.client_certificates is not None


def test_unchanged_cas_keep_what_was_found_out_about_connections() -> None:
    """A3: only a real rotation has every certificate judged again."""
    config = loaded()
    assert config.trust.front_proxy is not None
    before = config.trust.front_proxy.pool
    config.apply(config_map(DATA | {"requestheader-allowed-names": "[]", "extra": "1"}))
    assert config.trust.front_proxy.pool is before


async def test_watch_takes_changes_over_and_keeps_all_on_deletion() -> None:
    """A12."""
    config = RequestHeaderConfig()
    await config._take_list(in_slices([]))
    assert config.trust == Trust()
    await config._take_list(in_slices([config_map(DATA)]))
    assert identify(config) is not None
    config._take_event("DELETED", config_map(DATA | {"requestheader-allowed-names": '["other"]'}))
    config._take_event("MODIFIED", config_map(None))
    await config._take_list(in_slices([]))
    assert identify(config) is not None
    config._take_event("MODIFIED", config_map(DATA | {"requestheader-allowed-names": '["other"]'}))
    with pytest.raises(CredentialRejected):
        identify(config)


def test_other_config_maps_are_ignored() -> None:
    config = RequestHeaderConfig()
    config.apply(config_map(DATA, name="other"))
    assert config.trust == Trust()


def test_change_is_logged_once_it_is_in_force_and_only_when_there_is_one() -> None:
    told: list[bool] = []
    config = RequestHeaderConfig(on_change=lambda trust: told.append(trust is config.trust))
    for data in (DATA, dict(DATA), DATA | {"requestheader-allowed-names": "[]"}):
        config.apply(config_map(data))
    assert told == [True, True]


def test_listener_that_cannot_use_the_cas_does_not_end_the_watch() -> None:
    def refuse(_trust: Trust) -> None:
        raise TrustUnusable("OpenSSL reads it otherwise")

    config = RequestHeaderConfig(on_change=refuse)
    config.apply(config_map(DATA))
    assert identify(config) is not None


async def test_first_look_reads_that_one_config_map() -> None:
    """A12."""
    reader = FakeReader(msgspec.json.encode(config_map(DATA)))
    config = RequestHeaderConfig()
    await config.load(reader, tolerate_failure=False)
    assert identify(config) is not None
    assert reader.paths == ["/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"]


@pytest.mark.parametrize(
    "answer",
    [ApiError(404), ApiError(500), Unreachable("refused"), b"<html>", json.dumps([1]).encode()],
    ids=str,
)
async def test_config_that_is_not_there_yet_is_tolerated_at_start(answer: bytes | ClusterError) -> None:
    """A12: nobody logs in by certificate then."""
    config = RequestHeaderConfig()
    await config.load(FakeReader(answer), tolerate_failure=False)
    assert config.trust == Trust()


@pytest.mark.parametrize("status", [401, 403])
async def test_config_that_may_not_be_read_is_fatal_unless_tolerated(status: int) -> None:
    """A12; the message says what to bind and which flag there is."""
    config = RequestHeaderConfig()
    with pytest.raises(TrustForbidden, match=r"authentication-reader.*tolerate-lookup-failure"):
        await config.load(FakeReader(ApiError(status)), tolerate_failure=False)
    await config.load(FakeReader(ApiError(status)), tolerate_failure=True)
    assert config.trust == Trust()
