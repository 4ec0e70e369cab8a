"""Requests made up from the published OpenAPI, and what any answer to them must be.

schemathesis makes up the requests, good and bad ones; what it cannot know (names that exist, tokens,
selectors that mean something) is mixed in here, so that more than the parsers are reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings, strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

PUBLISHED = Path(__file__).parents[3] / "visibility_api" / "openapi" / "v3.json"
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
TRANSFORMED = {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}

EVERYTHING_ONCE = settings(
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
            "allowWatchBookmarks": ("true", "false"),
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


def target_of(case: Any) -> str:
    """Path and query, percent-encoded."""
    made = case.as_transport_kwargs(base_url="https://server")
    target = requests.Request(made["method"], made["url"], params=made["params"]).prepare().path_url
    return str(target)


def check(case: Any, answer: httpx.Response) -> None:
    """A promised body; a refusal says why, and only a revision from the future is an error above 499."""
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    body = answer.json() if is_json else None
    if body is not None and body.get("kind") in TRANSFORMED:
        assert (answer.status_code, body["apiVersion"]) == (200, "meta.k8s.io/v1")
        return
    answer.elapsed = timedelta(0)  # schemathesis wants to know it
    case.validate_response(answer, checks=CHECKS)
    if answer.status_code < 400 or body is None:
        return
    assert (body["kind"], body["apiVersion"], body["code"]) == ("Status", "v1", answer.status_code)
    assert body["reason"]
    if answer.status_code >= 500:
        causes = [cause["reason"] for cause in body["details"]["causes"]]
        assert (answer.status_code, causes) == (504, ["ResourceVersionTooLarge"]), body
