"""Requests made up from the published OpenAPI: nothing breaks, and every body is what was promised.

schemathesis makes up the requests, good and bad ones; what it cannot know (names that exist, tokens,
selectors that mean something) is mixed in here, so that more than the parsers are reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.clients.quiet_jobs import QuietJobs
from tests.e2e.api import Api
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import Workspace

PUBLISHED = Path(__file__).parents[2] / "openapi" / "v3.json"
OPERATIONS = {
    operation.label: operation
    for operation in (found.ok() for found in schemathesis.openapi.from_path(PUBLISHED).get_all_operations())
}
LISTS = [label for label in OPERATIONS if label.endswith("/trainjobs")]
CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_TRANSFORMED = {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}

_EVERYTHING_ONCE = settings(
    phases=(Phase.generate,),
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a client of this server may have learnt."""

    server: Api
    namespace: str
    names: tuple[str, ...]
    revision: int
    token: str  # goes on after the first of three

    def queries(self) -> st.SearchStrategy[dict[str, str]]:
        """A few parameters that mean something, or nearly."""
        revision = str(self.revision)
        values = {
            "labelSelector": (
                "tier=gold",
                "tier",
                "!tier",
                "tier in (gold,x)",
                "tier notin ()",
                "n>3",
                "n>x",
                "tier=,",
                "=",
            ),
            "fieldSelector": (
                f"metadata.name={self.names[0]}",
                "status.phase!=Pending",
                "metadata.namespace=x",
                "a=b",
                "x\\",
                ",,",
            ),
            "limit": ("1", "2", "500", "0", "-1", "x", "9223372036854775808", ""),
            "continue": (self.token, self.token[:-3], "e30", "x", ""),
            "resourceVersion": (
                revision,
                "0",
                "1",
                "",
                "x",
                "-1",
                "007",
                str(self.revision + 10**12),
                "9" * 40,
            ),
            "resourceVersionMatch": ("Exact", "NotOlderThan", "exact", ""),
            "sendInitialEvents": ("true", "false", "", "x"),
            "timeout": ("5s", "0", "1h", "x", "-1s", ""),
            "pretty": ("true", "1", "false", "x"),
            "includeObject": ("None", "Metadata", "Object", "x"),
            "timeoutSeconds": ("1", "x", "-1"),
            "export": ("false", "true"),
        }
        pairs = [(key, value) for key, some in values.items() for value in some]
        return st.lists(st.sampled_from(pairs), max_size=3).map(dict)

    def places(self) -> st.SearchStrategy[dict[str, str]]:
        return st.fixed_dictionaries(
            {"namespace": st.just(self.namespace), "name": st.sampled_from((*self.names, "nobody"))}
        )


ACCEPTED = st.sampled_from(
    (
        "application/json",
        "application/yaml",
        "*/*",
        "application/vnd.kubernetes.protobuf, application/json;q=0.5",
        f"{_TABLE}, application/json",
        _TABLE,
        _PARTIAL,
        _PARTIAL_LIST,
        "text/html",
        "application/json;as=Table;v=v9;g=meta.k8s.io",
        "application/json;q=x, ;",
        "",
    )
)


@pytest.fixture(scope="module")
def known(shared: Workspace, jobs: QuietJobs, server: VisibilityServer) -> Iterator[Known]:
    names = ("bert", "gpt", "llama")
    for name in names:
        jobs.create(name, {"tier": "gold", "n": "5"} if name == "bert" else {})
    jobs.wait_served(*names)
    page = shared.cluster.admin.get(jobs.collection, limit="1")
    pair = shared.admin.pair
    direct = Api(server.url, ca_file=server.authority.bundle, cert=(pair.cert, pair.key))
    yield Known(
        server=direct,
        namespace=shared.name,
        names=names,
        revision=int(page["metadata"]["resourceVersion"]),
        token=page["metadata"]["continue"],
    )
    direct.close()


@pytest.mark.parametrize(
    ("label", "mode"),
    [
        pytest.param(label, mode, id=f"{mode.value} {label.removeprefix('GET /apis/')}")
        for label, operation in OPERATIONS.items()
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or operation.query  # without parameters nothing can be wrong
    ],
)
def test_every_answer_is_what_the_published_api_promises(
    known: Known, label: str, mode: GenerationMode
) -> None:
    seen: set[int] = set()

    @_EVERYTHING_ONCE
    @given(case=OPERATIONS[label].as_strategy(mode), data=st.data())
    def ask(case: Any, data: st.DataObject) -> None:
        if case.path_parameters and data.draw(st.booleans(), label="a place that is"):
            place = data.draw(known.places())
            case.path_parameters = {key: place[key] for key in case.path_parameters}
        case.query = {**(case.query or {}), **data.draw(known.queries())}
        case.query.pop("watch", None)  # which has its own test
        accepted = data.draw(ACCEPTED)
        made = case.as_transport_kwargs(base_url="https://server", headers={"Accept": accepted})
        target = requests.Request(made["method"], made["url"], params=made["params"]).prepare().path_url
        answer = known.server.raw("GET", target, headers={"Accept": accepted})
        seen.add(answer.status_code)
        check(case, answer)

    ask()
    assert 200 in seen


def check(case: Any, answer: httpx.Response) -> None:
    """A promised body; a refusal says why, and only a revision from the future is an error of 500 or above."""
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    body = answer.json() if is_json else None
    if body is not None and body["kind"] in _TRANSFORMED:
        assert (answer.status_code, body["apiVersion"]) == (200, "meta.k8s.io/v1")
        return
    case.validate_response(answer, checks=CHECKS)
    if answer.status_code < 400 or body is None:
        return
    assert (body["kind"], body["apiVersion"], body["code"]) == ("Status", "v1", answer.status_code)
    assert body["reason"]
    if answer.status_code >= 500:
        causes = [cause["reason"] for cause in body["details"]["causes"]]
        assert (answer.status_code, causes) == (504, ["ResourceVersionTooLarge"]), body
