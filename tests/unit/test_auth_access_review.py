"""Who may: what is asked, what counts as yes, how long that is remembered (Z1 to Z13).

Z14 and Z15 are wording (api/status); Z3, Z4, Z5, Z7 and Z8 are worked out in api/request_info. Z16, a watch
that outlives a right, is the app calling `authorize` once a request: nothing here could recall it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.reviews import FakeApi, until
from visibility_api.auth.access_review import (
    DENIAL_COST,
    MAX_CACHED_BYTES,
    MAX_RUNNING_PER_USER,
    PATH,
    REVIEW_BURST,
    REVIEWS_PER_S,
    AccessReviewer,
)
from visibility_api.auth.errors import AccessDenied, ReviewFailed
from visibility_api.auth.identity import ANONYMOUS, Attributes, Identity, Requirement
from visibility_api.auth.review_client import ReviewClient
from visibility_api.errors.status import TooManyRequests
from visibility_api.kube.errors import ApiError, Unreachable

JANE = Identity(user="jane", groups=("dev", "system:authenticated"), uid="7", extra=(("scopes", ("a", "b")),))
GET = Attributes(
    verb="get",
    path="/apis/g/v1/namespaces/ns/trainjobs/bert/progress",
    is_resource=True,
    group="g",
    version="v1",
    namespace="ns",
    resource="trainjobs",
    subresource="progress",
    name="bert",
)
YES, NO = {"allowed": True}, {"allowed": False, "reason": "no RBAC policy matched"}


def reviewer(api: FakeApi) -> AccessReviewer:
    return AccessReviewer(ReviewClient(api, PATH, sleep=api.sleep), clock=lambda: api.time)


async def test_a_resource_request_is_reviewed_with_the_whole_user() -> None:
    """Z1, Z9."""
    api = FakeApi(status=YES)
    await reviewer(api).authorize(JANE, GET)
    assert api.paths == ["/apis/authorization.k8s.io/v1/subjectaccessreviews"]
    assert api.calls == [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "jane",
                "groups": ["dev", "system:authenticated"],
                "uid": "7",
                "extra": {"scopes": ["a", "b"]},
                "resourceAttributes": {
                    "namespace": "ns",
                    "verb": "get",
                    "group": "g",
                    "version": "v1",
                    "resource": "trainjobs",
                    "subresource": "progress",
                    "name": "bert",
                },
            },
        }
    ]


async def test_a_non_resource_request_is_reviewed_by_path_and_verb() -> None:
    """Z9."""
    api = FakeApi(status=YES)
    await reviewer(api).authorize(ANONYMOUS, Attributes(verb="get", path="/metrics"))
    assert api.calls[0]["spec"] == {
        "user": "system:anonymous",
        "groups": ["system:unauthenticated"],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_selectors_go_into_the_question() -> None:
    """Z8, Z10; all namespaces are the empty one, left out."""
    api = FakeApi(status=YES)
    listing = replace(
        GET,
        verb="list",
        namespace="",
        subresource="",
        field_requirements=(Requirement(key="metadata.name", operator="In", values=("bert",)),),
        label_requirements=(Requirement(key="team", operator="Exists"),),
    )
    await reviewer(api).authorize(JANE, listing)
    asked = api.calls[0]["spec"]["resourceAttributes"]
    assert "namespace" not in asked
    assert asked["name"] == "bert"
    assert asked["fieldSelector"] == {
        "requirements": [{"key": "metadata.name", "operator": "In", "values": ["bert"]}]
    }
    assert asked["labelSelector"] == {"requirements": [{"key": "team", "operator": "Exists", "values": []}]}


async def test_masters_and_the_three_health_paths_are_allowed_unasked() -> None:
    """Z2."""
    api = FakeApi(status=NO)
    access = reviewer(api)
    await access.authorize(Identity(user="root", groups=("system:masters",)), GET)
    for path in ("/healthz", "/livez", "/readyz"):
        for verb in ("get", "post", "propfind"):
            await access.authorize(ANONYMOUS, Attributes(verb=verb, path=path))
    assert api.calls == []


@pytest.mark.parametrize("path", ["/readyz/ping", "/readyz/", "/healthz2", "/", "/metrics", "//readyz"])
async def test_paths_beside_the_three_are_reviewed(path: str) -> None:
    """Z2, Z6."""
    api = FakeApi(status=NO)
    with pytest.raises(AccessDenied):
        await reviewer(api).authorize(ANONYMOUS, Attributes(verb="get", path=path))
    assert len(api.calls) == 1


async def test_resource_is_reviewed_whatever_its_path() -> None:
    """Z2: what is asked for decides, not how it was spelt."""
    with pytest.raises(AccessDenied):
        await reviewer(FakeApi(status=NO)).authorize(JANE, replace(GET, path="/readyz"))


@pytest.mark.parametrize(
    ("status", "is_allowed"),
    [
        ({"allowed": True}, True),
        ({"allowed": True, "evaluationError": "x"}, True),
        ({"allowed": True, "denied": True}, False),
        ({"allowed": False, "denied": True}, False),
        ({"allowed": False}, False),
        ({}, False),
        ({"evaluationError": "x"}, False),
    ],
)
async def test_only_allowed_without_denied_is_a_yes(status: dict[str, Any], is_allowed: bool) -> None:
    """Z11."""
    access = reviewer(FakeApi(status=status))
    if is_allowed:
        await access.authorize(JANE, GET)
    else:
        with pytest.raises(AccessDenied) as caught:
            await access.authorize(JANE, GET)
        assert (caught.value.identity, caught.value.attributes) == (JANE, GET)


async def test_reason_of_a_no_is_handed_on() -> None:
    """Z15."""
    with pytest.raises(AccessDenied, match="no RBAC policy matched"):
        await reviewer(FakeApi(status=NO)).authorize(JANE, GET)


@pytest.mark.parametrize("status", [YES, NO], ids=["allowed", "denied"])
async def test_a_decision_is_cached_for_ten_seconds(status: dict[str, Any]) -> None:
    """Z12."""
    api = FakeApi(status=status)
    access = reviewer(api)
    for time_s, calls in ((0.0, 1), (9.9, 1), (10.1, 2)):
        api.time = time_s
        await asyncio.gather(access.authorize(JANE, GET), return_exceptions=True)
        assert len(api.calls) == calls


async def test_every_part_of_a_review_tells_decisions_apart() -> None:
    """Z12: keyed by the whole spec."""
    api = FakeApi(status=YES)
    access = reviewer(api)
    users = [
        JANE,
        replace(JANE, user="joe"),
        replace(JANE, uid="8"),
        replace(JANE, groups=("dev",)),
        replace(JANE, groups=("system:authenticated", "dev")),
        replace(JANE, extra=()),
    ]
    asked = [
        GET,
        replace(GET, namespace="other"),
        replace(GET, name="gpt"),
        replace(GET, verb="list"),
        replace(GET, subresource=""),
        replace(GET, resource="jobs"),
        replace(GET, label_requirements=(Requirement(key="a", operator="Exists"),)),
        replace(GET, field_requirements=(Requirement(key="a", operator="Exists"),)),
    ]
    for _ in range(2):
        for user in users:
            for attributes in asked:
                await access.authorize(user, attributes)
    assert len(api.calls) == len(users) * len(asked)


async def test_an_oversized_review_is_sent_each_time() -> None:
    """Z12; by its attributes, its selectors or its user: all of them may be long."""
    long_name = replace(GET, name="a" * MAX_CACHED_BYTES)
    requirement = Requirement(key="a", operator="In", values=("b" * 5000, "c" * 5000))
    crowded = replace(JANE, groups=tuple(f"group-{number}" for number in range(2000)))
    for user, attributes in (
        (JANE, long_name),
        (JANE, replace(GET, label_requirements=(requirement,))),
        (crowded, GET),
    ):
        api = FakeApi(status=YES)
        access = reviewer(api)
        await access.authorize(user, attributes)
        await access.authorize(user, attributes)
        assert len(api.calls) == 2


async def test_cache_is_bounded_and_forgets_what_was_not_used_longest() -> None:
    """Z12."""
    api = FakeApi(status=YES)
    access = reviewer(api)
    for number in range(8192):
        await access.authorize(replace(JANE, user=f"user-{number // 2000}"), replace(GET, name=str(number)))
    first, last = replace(JANE, user="user-0"), replace(JANE, user="user-9")
    await access.authorize(first, replace(GET, name="0"))
    await access.authorize(last, replace(GET, name="new"))
    assert len(api.calls) == 8193
    await access.authorize(first, replace(GET, name="0"))
    assert len(api.calls) == 8193
    await access.authorize(last, replace(GET, name="1"))
    assert len(api.calls) == 8194


async def test_identical_questions_share_one_call() -> None:
    api = FakeApi(status=YES, is_held=True)
    access = reviewer(api)
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(access.authorize(JANE, GET))
        await until(lambda: bool(api.calls))
        api.release()
    assert len(api.calls) == 1


@pytest.mark.parametrize(
    "failure",
    [ApiError(403, "Forbidden"), ApiError(404), b"<html>", b'{"status":{"allowed":1}}', b"\xff", b""],
    ids=str,
)
async def test_failed_review_is_neither_yes_nor_no_and_not_remembered(failure: Exception | bytes) -> None:
    """Z13."""
    api = FakeApi(status=YES, failures=[failure])
    access = reviewer(api)
    with pytest.raises(ReviewFailed):
        await access.authorize(JANE, GET)
    await access.authorize(JANE, GET)
    assert len(api.calls) == 2


async def test_review_is_tried_five_times_before_it_fails_for_all_who_wait() -> None:
    """Z13, with the limits of A18."""
    api = FakeApi(status=YES, failures=[Unreachable("reset")] * 5, is_held=True)
    access = reviewer(api)
    waiting = [asyncio.ensure_future(access.authorize(JANE, GET)) for _ in range(3)]
    await until(lambda: bool(api.calls))
    api.release()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ReviewFailed] * 3
    assert len(api.calls) == 5
    assert api.timeouts_s == [10.0] * 5


async def test_one_users_reviews_are_bounded_and_another_users_are_not_held_up() -> None:
    api = FakeApi(status=YES)
    reviews = reviewer(api)
    for number in range(int(REVIEW_BURST)):
        await reviews.authorize(JANE, replace(GET, name=f"job-{number}"))
    with pytest.raises(TooManyRequests, match="list instead") as refused:
        await reviews.authorize(JANE, replace(GET, name="one-more"))
    assert refused.value.retry_after_s >= 1
    await reviews.authorize(JANE, replace(GET, name=f"job-{int(REVIEW_BURST) - 1}"))  # cached
    await reviews.authorize(replace(JANE, user="joe"), GET)
    api.time = 1.0
    await reviews.authorize(JANE, replace(GET, name="one-more"))


async def test_the_service_accounts_of_a_namespace_have_the_reviews_of_one_user() -> None:
    """Whoever rules the namespace makes as many as it likes."""
    api = FakeApi(status=YES)
    reviews = reviewer(api)
    accounts = [replace(JANE, user=f"system:serviceaccount:team-a:{number}") for number in range(10)]
    for number in range(int(REVIEW_BURST)):
        await reviews.authorize(accounts[number % 10], replace(GET, name=f"job-{number}"))
    for account in accounts:
        with pytest.raises(TooManyRequests):
            await reviews.authorize(account, replace(GET, name="one-more"))
    await reviews.authorize(replace(JANE, user="system:serviceaccount:team-b:0"), GET)


async def test_whoever_may_nothing_has_fewer_reviews_than_whoever_may() -> None:
    api = FakeApi(status=NO)
    reviews = reviewer(api)
    for number in range(2 * int(REVIEW_BURST / DENIAL_COST)):
        with pytest.raises((AccessDenied, TooManyRequests)):
            await reviews.authorize(JANE, replace(GET, name=f"job-{number}"))
    assert len(api.calls) == REVIEW_BURST / DENIAL_COST
    with pytest.raises(AccessDenied):
        await reviews.authorize(replace(JANE, user="joe"), GET)


async def test_reviews_that_are_slow_for_one_user_leave_places_for_others() -> None:
    api = FakeApi(status=YES, is_held=True)
    reviews = reviewer(api)
    crowd = [
        asyncio.create_task(reviews.authorize(JANE, replace(GET, name=f"job-{number}")))
        for number in range(100)
    ]
    await until(lambda: len(api.calls) == MAX_RUNNING_PER_USER)
    other = asyncio.create_task(reviews.authorize(replace(JANE, user="joe"), GET))
    await until(lambda: len(api.calls) > MAX_RUNNING_PER_USER)
    assert api.calls[-1]["spec"]["user"] == "joe"
    api.release()
    await asyncio.gather(other, *crowd)


async def test_anonymous_callers_cannot_push_decisions_about_users_out_of_the_cache() -> None:
    api = FakeApi(status=NO)
    reviews = reviewer(api)
    with pytest.raises(AccessDenied):
        await reviews.authorize(JANE, GET)
    for number in range(1000):
        api.time = number * 0.001
        with pytest.raises((AccessDenied, TooManyRequests)):
            await reviews.authorize(ANONYMOUS, Attributes(verb="get", path=f"/{number}"))
    calls = len(api.calls)
    assert calls <= 1 + (REVIEW_BURST + REVIEWS_PER_S) / DENIAL_COST
    with pytest.raises(AccessDenied):
        await reviews.authorize(JANE, GET)
    assert len(api.calls) == calls
