"""The options of list and watch: L4, L7, L19, R19, T8, W7."""

from __future__ import annotations

import pytest

from tests.unit.resource_server import ALL, BERT, TABLE, ResourceServer

_MATCH = "resourceVersionMatch"
_KNOWN = '"metadata.name", "metadata.namespace", "status.phase"'
_RV = 'invalid resource version: "{0}" is not a number of 64 bits'


@pytest.fixture
def server() -> ResourceServer:
    server = ResourceServer()
    server.put()
    return server


@pytest.mark.parametrize(
    ("query", "faults"),
    [
        (f"{_MATCH}=Exact", [f"Forbidden: {_MATCH} is forbidden unless resourceVersion is provided"]),
        (
            f"{_MATCH}=NotOlderThan&resourceVersion=5&continue=x",
            [f"Forbidden: {_MATCH} is forbidden when continue is provided"],
        ),
        (
            f"{_MATCH}=foo&resourceVersion=1",
            ['Unsupported value: "foo": supported values: "Exact", "NotOlderThan", ""'],
        ),
        (
            f"{_MATCH}=Exact&resourceVersion=0",
            [f'Forbidden: {_MATCH} "exact" is forbidden for resourceVersion "0"'],
        ),
        (
            "watch=1&sendInitialEvents=false",
            [f"Forbidden: sendInitialEvents requires setting {_MATCH} to NotOlderThan"],
        ),
        (
            "watch=1&sendInitialEvents=true&resourceVersion=5",
            [f"Forbidden: sendInitialEvents requires setting {_MATCH} to NotOlderThan"],
        ),
        (
            f"watch=1&{_MATCH}=NotOlderThan&resourceVersion=1",
            [f"Forbidden: {_MATCH} is forbidden for watch unless sendInitialEvents is provided"],
        ),
        (
            f"watch=1&{_MATCH}=NotOlderThan&sendInitialEvents=1&continue=x",
            [f"Forbidden: {_MATCH} is forbidden when continue is provided"],
        ),
        ("watch=1&continue=x", [f"Forbidden: {_MATCH} is forbidden when continue is provided"]),
        (
            f"watch=1&{_MATCH}=Exact&sendInitialEvents=1",
            [
                f"Forbidden: sendInitialEvents requires setting {_MATCH} to NotOlderThan",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
    ],
)
async def test_options_that_exclude_each_other_are_invalid(
    server: ResourceServer, query: str, faults: list[str]
) -> None:
    """L4, W7"""
    status = (await server.get(f"{ALL}?{query}")).json()
    texts = [f"{_MATCH}: {fault}" for fault in faults]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    assert status["message"] == f'ListOptions.meta.k8s.io "" is invalid: {joined}'
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (status["details"]["group"], status["details"]["kind"]) == ("meta.k8s.io", "ListOptions")
    reasons = {"Forbidden": "FieldValueForbidden", "Unsupported value": "FieldValueNotSupported"}
    assert status["details"]["causes"] == [
        {"reason": reasons[fault.partition(":")[0]], "message": fault, "field": _MATCH} for fault in faults
    ]


@pytest.mark.parametrize("value", ["true", "false", ""])
async def test_a_list_sends_no_initial_events(server: ResourceServer, value: str) -> None:
    """L4: present at all"""
    _, reason, message = await server.refused(f"{ALL}?sendInitialEvents={value}")
    assert reason == "Invalid"
    assert message.endswith("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=abc", 'limit="abc" is not an integer of 64 bits'),
        ("limit=", 'limit="" is not an integer of 64 bits'),
        ("limit=99999999999999999999", 'limit="99999999999999999999" is not an integer of 64 bits'),
        ("timeoutSeconds=1.5", 'timeoutSeconds="1.5" is not an integer of 64 bits'),
        ("watch=1&timeoutSeconds=x", 'timeoutSeconds="x" is not an integer of 64 bits'),
        ("resourceVersion=abc", _RV.format("abc")),
        ("resourceVersion=-1", _RV.format("-1")),
        ("resourceVersion=18446744073709551616", _RV.format("18446744073709551616")),
        ("watch=1&resourceVersion=abc", _RV.format("abc")),
        ("labelSelector=a%3D%3D%3Db", 'cannot parse the selector from "a===b" on'),
        ("fieldSelector=abc", 'cannot parse the selector from "abc" on'),
        ("export=true", "the export parameter, deprecated since v1.14, is no longer supported"),
        (
            "fieldSelector=spec.x%3D1",
            f'"spec.x" is not a known field selector: only {_KNOWN}',
        ),
    ],
)
async def test_what_cannot_be_read_is_a_bad_request(server: ResourceServer, query: str, message: str) -> None:
    """L7, L15 to L17, L19, R19"""
    assert await server.refused(f"{ALL}?{query}") == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("export=1", "the export parameter, deprecated since v1.14, is no longer supported"),
        ("resourceVersion=x", _RV.format("x")),
    ],
)
async def test_a_get_has_options_too(server: ResourceServer, query: str, message: str) -> None:
    """L7, R19"""
    assert await server.refused(f"{BERT}?{query}") == (400, "BadRequest", message)


async def test_includeobject_is_one_of_three(server: ResourceServer) -> None:
    """T8; outside of Tables nobody reads it."""
    message = (
        'Unable to convert to Table as requested: includeObject: Invalid value: "x": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )
    for target in (BERT, ALL, f"{ALL}?watch=1"):
        asked = f"{target}{'&' if '?' in target else '?'}includeObject=x"
        assert await server.refused(asked, TABLE) == (400, "BadRequest", message)
    assert (await server.get(f"{ALL}?includeObject=x")).status == 200


@pytest.mark.parametrize(
    "query",
    ["limit=-1", "limit=0", "foo=bar", "export=false", "pretty=", "limit=1&limit=x", "timeoutSeconds=-5"],
)
async def test_harmless_options_do_no_harm(server: ResourceServer, query: str) -> None:
    """R19, Z5: unknown ones are ignored, only the first of a repeated one counts."""
    answer = await server.get(f"{ALL}?{query}")
    assert answer.status == 200
    assert len(answer.json()["items"]) == 1
