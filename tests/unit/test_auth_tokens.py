"""Bearer tokens: where they are found, what a review makes of them, how long that holds (A15 to A18)."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.reviews import FakeApi, until
from visibility_api.auth.errors import CredentialRejected
from visibility_api.auth.review_admission import (
    REVIEW_BURST,
    START_BURST,
    STARTS_PER_S,
    ReviewAdmission,
    site_of,
    unknown_queues,
)
from visibility_api.auth.review_client import ReviewClient
from visibility_api.auth.token_review import MAX_ENTRIES, PATH, TokenReviewer, header_token
from visibility_api.errors.status import TooManyRequests
from visibility_api.kube.errors import ApiError, Unreachable

JANE = {
    "authenticated": True,
    "user": {"username": "jane", "uid": "7", "groups": ["dev"], "extra": {"b": ["2"], "a": ["1"]}},
}


def reviewer(api: FakeApi) -> TokenReviewer:
    return TokenReviewer(ReviewClient(api, PATH, sleep=api.sleep), clock=lambda: api.time)


def admitted(api: FakeApi, **bounds: int) -> TokenReviewer:
    admission = ReviewAdmission(unknown=unknown_queues(start_burst=1e6, **bounds), clock=lambda: api.time)
    reviews = ReviewClient(api, PATH, sleep=api.sleep)
    return TokenReviewer(reviews, admission=admission, clock=lambda: api.time)


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Bearer abc", "abc"),
        ("bEARER abc", "abc"),
        ("  Bearer abc  ", "abc"),
        ("Bearer abc def", "abc"),
        ("Bearer  abc", None),
        ("Bearer ", ""),
        ("Bearer", ""),
        ("Basic abc", ""),
        ("", ""),
    ],
)
def test_token_is_the_second_field_of_the_first_header(value: str, token: str | None) -> None:
    """A15."""
    headers = [(b"authorization", value.encode()), (b"authorization", b"Bearer other")]
    assert header_token(headers) == token


@given(st.binary(max_size=100))
def test_any_bytes_are_a_token_nothing_or_a_rejection(value: bytes) -> None:
    """And a rejection is a sentence of our own, without anything of the value."""
    try:
        header_token([(b"authorization", b"Bearer " + value)])
    except CredentialRejected as error:
        assert str(error) == "the token is not UTF-8"  # noqa: PT017 - most values are not rejected


def test_oversized_token_is_rejected_without_asking() -> None:
    with pytest.raises(CredentialRejected, match="longer"):
        header_token([(b"authorization", b"Bearer " + b"a" * 100_000)])


async def test_accepted_token_is_the_user_the_review_names() -> None:
    """A14, A16: and no audience is asked for."""
    api = FakeApi(status=JANE)
    identity = await reviewer(api).identify("t0ken")
    assert api.calls == [
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t0ken"}}
    ]
    assert (identity.user, identity.uid) == ("jane", "7")
    assert identity.groups == ("dev", "system:authenticated")
    assert identity.extra == (("a", ("1",)), ("b", ("2",)))


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "error": "expired"},
        {"user": {"username": "jane"}},
        {"authenticated": True},
    ],
    ids=["nothing", "refused", "user without verdict", "verdict without user"],
)
async def test_token_that_is_not_accepted_is_rejected(status: dict[str, Any]) -> None:
    """A15."""
    with pytest.raises(CredentialRejected, match="not accepted"):
        await reviewer(FakeApi(status=status)).identify("t0ken")


@pytest.mark.parametrize(("answered", "accepted"), [(["us", "x"], True), (["them"], False), ([], False)])
async def test_wanted_audience_must_be_among_the_reviews(answered: list[str], accepted: bool) -> None:
    """A16."""
    api = FakeApi(status={**JANE, "audiences": answered})
    tokens = reviewer(api)
    if accepted:
        assert (await tokens.identify("t0ken", ("us", "ours"))).user == "jane"
    else:
        with pytest.raises(CredentialRejected, match="audience"):
            await tokens.identify("t0ken", ("us", "ours"))
    assert api.calls[0]["spec"]["audiences"] == ["us", "ours"]


@pytest.mark.parametrize("status", [JANE, {}], ids=["accepted", "refused"])
async def test_a_decision_is_cached_for_ten_seconds(status: dict[str, Any]) -> None:
    """A17, for yes and no alike."""
    api = FakeApi(status=status)
    tokens = reviewer(api)
    for time_s, calls in ((0.0, 1), (9.9, 1), (10.1, 2)):
        api.time = time_s
        await asyncio.gather(tokens.identify("t0ken"), return_exceptions=True)
        assert len(api.calls) == calls
    await asyncio.gather(tokens.identify("other"), return_exceptions=True)
    assert len(api.calls) == 3


async def test_identical_lookups_share_one_call() -> None:
    """A17."""
    api = FakeApi(status=JANE, is_held=True)
    tokens = reviewer(api)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(tokens.identify("t0ken")) for _ in range(20)]
        await until(lambda: bool(api.calls))
        api.release()
    assert {task.result().user for task in tasks} == {"jane"}
    assert len(api.calls) == 1


async def test_caller_that_is_cancelled_leaves_the_others_their_answer() -> None:
    api = FakeApi(status=JANE, is_held=True)
    tokens = reviewer(api)
    first = asyncio.ensure_future(tokens.identify("t0ken"))
    await until(lambda: len(api.calls) == 1)
    others = [asyncio.ensure_future(tokens.identify("t0ken")) for _ in range(3)]
    await asyncio.sleep(0)
    others[0].cancel()
    first.cancel()
    await until(lambda: len(api.calls) == 2)
    api.release()
    assert [(await task).user for task in others[1:]] == ["jane", "jane"]
    assert len(api.calls) == 2


async def test_failed_call_is_rejected_and_not_remembered() -> None:
    """A17, A18; the error that callers see names no token."""
    api = FakeApi(status=JANE, failures=[ApiError(403, "Forbidden", "no t0ken here")])
    tokens = reviewer(api)
    with pytest.raises(CredentialRejected, match=r"could not be reviewed: HTTP 403$") as caught:
        await tokens.identify("t0ken")
    assert caught.value.__cause__ is None
    assert (await tokens.identify("t0ken")).user == "jane"


async def test_answer_that_cannot_be_read_is_rejected_and_not_remembered() -> None:
    api = FakeApi(status=JANE, failures=[b"<html>", b'{"status":{"authenticated":"yes"}}', b"\xff"])
    tokens = reviewer(api)
    for _ in range(3):
        with pytest.raises(CredentialRejected, match="cannot be read"):
            await tokens.identify("t0ken")
    assert (await tokens.identify("t0ken")).user == "jane"


@pytest.mark.parametrize(
    "failure",
    [ApiError(429), ApiError(500), ApiError(504), ApiError(503, retry_after_s=2), Unreachable("reset")],
    ids=str,
)
async def test_passing_failures_are_tried_again_up_to_five_times(failure: Exception) -> None:
    """A18: 500 ms, 1.5 times as long each time, jitter 0.2, or what Retry-After says when that is longer."""
    api = FakeApi(status=JANE, failures=[failure] * 4)
    assert (await reviewer(api).identify("t0ken")).user == "jane"
    least_s = 2.0 if isinstance(failure, ApiError) and failure.retry_after_s else 0.0
    for slept_s, delay_s in zip(api.slept_s, (0.5, 0.75, 1.125, 1.6875), strict=True):
        base_s = max(delay_s, least_s)
        assert base_s <= slept_s <= base_s * 1.2
    api = FakeApi(status=JANE, failures=[failure] * 5)
    with pytest.raises(CredentialRejected):
        await reviewer(api).identify("t0ken")
    assert len(api.calls) == 5


async def test_refusals_and_time_outs_are_not_tried_again() -> None:
    """A18."""
    timed_out = Unreachable("no answer within 10s")
    timed_out.__cause__ = TimeoutError()
    for failure in (ApiError(403), ApiError(404), timed_out):
        api = FakeApi(status=JANE, failures=[failure])
        with pytest.raises(CredentialRejected):
            await reviewer(api).identify("t0ken")
        assert (len(api.calls), api.slept_s) == (1, [])


async def test_each_call_has_ten_seconds_and_is_counted() -> None:
    """A18, P19."""
    counted: list[str] = []
    api = FakeApi(status=JANE, failures=[ApiError(500), Unreachable("reset")])
    reviews = ReviewClient(api, PATH, count=counted.append, sleep=api.sleep)
    await TokenReviewer(reviews).identify("t0ken")
    assert counted == ["500", "<error>", "201"]
    assert api.timeouts_s == [10.0] * 3
    assert api.paths == [PATH] * 3


async def test_token_is_kept_nowhere() -> None:
    """A17: the cache is keyed by a hash with a key of this process."""
    tokens = reviewer(FakeApi(status=JANE))
    await tokens.identify("t0ken-in-memory")
    (key,) = tokens._results._results
    assert list(tokens._known) == [key]
    assert b"t0ken" not in key[0]
    other = reviewer(FakeApi(status=JANE))
    await other.identify("t0ken-in-memory")
    assert list(other._results._results) != [key]
    assert "t0ken" not in repr(list(tokens._results._results.values()))
    refusing = reviewer(FakeApi(status={}))
    with pytest.raises(CredentialRejected):
        await refusing.identify("t0ken-in-memory")
    assert "t0ken" not in repr(list(refusing._results._results.items()))


async def test_made_up_tokens_do_not_push_those_of_users_out_of_the_cache() -> None:
    """As many as are reviewed within the time for which a result is cached."""
    api = FakeApi(status=JANE)
    tokens = reviewer(api)
    await tokens.identify("t0ken")
    api.status = {}
    for number in range(int(10 * STARTS_PER_S + START_BURST)):
        with pytest.raises(CredentialRejected):
            await tokens.identify(f"made-up-{number}")
    calls = len(api.calls)
    assert (await tokens.identify("t0ken")).user == "jane"
    assert len(api.calls) == calls
    assert len(tokens._results._results) <= MAX_ENTRIES


async def test_a_flood_of_made_up_tokens_is_reviewed_at_a_bounded_rate() -> None:
    api = FakeApi(status={})
    tokens = admitted(api)
    outcomes = [
        await asyncio.gather(tokens.identify(f"made-up-{number}", address="10.9.9.9"), return_exceptions=True)
        for number in range(int(REVIEW_BURST) + 50)
    ]
    assert len(api.calls) == REVIEW_BURST
    assert [type(last) for (last,) in outcomes[-50:]] == [TooManyRequests] * 50
    (refusal,) = outcomes[-1]
    assert isinstance(refusal, TooManyRequests)
    assert refusal.retry_after_s >= 1
    assert "address" in refusal.message
    with pytest.raises(CredentialRejected):  # another address has its own share
        await tokens.identify("made-up", address="10.9.9.8")


async def test_a_token_that_was_accepted_is_reviewed_ahead_of_unknown_ones() -> None:
    """Also one that comes from the address that the flood comes from."""
    api = FakeApi(status=JANE)
    tokens = admitted(api, max_running=2, max_running_per_client=2)
    await tokens.identify("t0ken", address="10.9.9.9")
    api.time = 11.0
    api.hold()
    flood = [
        asyncio.create_task(tokens.identify(f"made-up-{number}", address="10.9.9.9")) for number in range(40)
    ]
    await until(lambda: len(api.calls) == 3)
    user = asyncio.create_task(tokens.identify("t0ken", address="10.9.9.9"))
    await until(lambda: len(api.calls) == 4)
    assert api.calls[-1]["spec"]["token"] == "t0ken"
    api.release()
    assert (await user).user == "jane"
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_token_that_is_refused_is_known_no_longer() -> None:
    """Its next review waits behind others, once the refusal is over."""
    api = FakeApi(status=JANE)
    tokens = admitted(api, max_running=1, max_running_per_client=1)
    await tokens.identify("t0ken", address="10.9.9.9")
    api.time, api.status = 11.0, {}
    with pytest.raises(CredentialRejected):
        await tokens.identify("t0ken", address="10.9.9.9")
    api.time = 60.0
    api.hold()
    waiting = [
        asyncio.create_task(tokens.identify(token, address="10.9.9.9")) for token in ("made-up", "t0ken")
    ]
    for _ in range(50):
        await asyncio.sleep(0)
    assert [call["spec"]["token"] for call in api.calls] == ["t0ken", "t0ken", "made-up"]
    api.release()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert [call["spec"]["token"] for call in api.calls[3:]] == ["t0ken"]


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::"),
        ("not:an:address", ""),
        ("", ""),
    ],
)
def test_one_client_cannot_look_like_many_by_its_choice_of_address(address: str, site: str) -> None:
    assert site_of(address) == site


async def test_refusals_leave_nothing_to_the_garbage_collector() -> None:
    """It would stop everybody for as long as the refused are many: 30 ms at a time under a flood."""
    api = FakeApi(status={}, is_held=True)
    tokens = admitted(api, max_waiting=20, max_waiting_per_client=10)

    async def try_token(number: int) -> type[Exception] | None:
        try:
            await tokens.identify(f"made-up-{number // 2}", address=f"10.0.0.{number % 4}")
        except (CredentialRejected, TooManyRequests) as refusal:
            return type(refusal)
        return None

    gc.collect()
    gc.disable()
    try:
        trying = asyncio.gather(*map(try_token, range(200)))
        await until(lambda: bool(api.calls))
        api.release()
        refused = await trying
        assert set(refused) == {CredentialRejected, TooManyRequests}
        assert gc.collect() < len(refused)  # with references in a circle some thirty objects each
    finally:
        gc.enable()
