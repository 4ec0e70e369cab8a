"""The same requests to the TrainJobs themselves, which kube-apiserver serves, and to their progress.

Only a real one can be compared with; the stand-in would be our own opinion twice.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.conformance.fronts import Front
from tests.conformance.team import Team
from tests.e2e.cluster import Cluster
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import TRAINER

_TRAINER = TRAINER.split("/")[2]
_META = "g=meta.k8s.io;v=v1"
_TABLE = f"application/json;as=Table;{_META}"


@pytest.fixture(scope="module", autouse=True)
def _only_a_real_one_counts(cluster: Cluster) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in's word proves nothing about kube-apiserver")


def _both(
    front: Front, crowd: Team, path: str, *, method: str = "GET", accept: str | None = None, **query: str
) -> tuple[httpx.Response, httpx.Response]:
    """Our answer and the native one, both through kube-apiserver and by the same user."""
    native = f"{TRAINER}/namespaces/{crowd.namespace}/trainjobs"
    ours, theirs = (
        front.admin.send(base + path, method=method, accept=accept, **query) for base in (crowd.path, native)
    )
    return ours, theirs


def _told(answer: httpx.Response) -> Any:
    """The body, with the native group called ours."""
    text = answer.text.replace(_TRAINER, GROUP) if GROUP not in answer.text else answer.text
    return json.loads(text) if answer.headers["content-type"] == "application/json" else text


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "NotOlderThan"},
        {"resourceVersionMatch": "Newest", "resourceVersion": "5"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "5", "continue": "x"},
        {"resourceVersionMatch": "Newest", "continue": "x"},
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "false", "resourceVersionMatch": "Newest"},
        {"watch": "1", "sendInitialEvents": "true"},
        {"watch": "1", "sendInitialEvents": "false"},
        {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        {"watch": "1", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "5"},
        {
            "watch": "1",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "continue": "x",
        },
        {"labelSelector": "a b"},
        {"labelSelector": "a=b c"},
        {"labelSelector": "a in b"},
        {"labelSelector": "a in (b"},
        {"labelSelector": ",a"},
        {"labelSelector": "a,,b"},
        {"labelSelector": "a=-b"},
        {"labelSelector": "-a=b"},
        {"labelSelector": "a/b/c=d"},
        {"labelSelector": "a>x"},
        {"labelSelector": "a=" + "b" * 64},
        {"labelSelector": "!"},
        {"labelSelector": "a=(b)"},
        {"fieldSelector": "metadata.name"},
        {"fieldSelector": "metadata.name=a=b"},
        {"fieldSelector": "metadata.name=a\\x"},
        {"limit": "x"},
        {"limit": "9" * 30},
        {"timeoutSeconds": "1s"},
        {"watch": "1", "timeoutSeconds": "x"},
        {"resourceVersion": "x"},
        {"continue": "x"},
        {"continue": "e30"},
        {"export": "true"},
        {"timeout": "x"},
        {"timeout": "5"},
    ],
    ids=lambda query: " ".join(f"{key}={value:.20}" for key, value in query.items()),
)
def test_L4_R1_options_are_refused_in_the_same_words(
    aggregated: Front, crowd: Team, query: dict[str, str]
) -> None:
    ours, theirs = _both(aggregated, crowd, "", **query)
    assert theirs.status_code >= 400, "native resources take it"
    assert (ours.status_code, _told(ours)) == (theirs.status_code, _told(theirs))


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("GET", "/nobody", None),
        ("GET", "/nobody", "application/yaml"),
        ("GET", "/nobody", _TABLE),
        ("GET", "/nobody/nothing", None),
        ("GET", "/a/b/c", None),
        ("GET", "", "application/vnd.kubernetes.protobuf"),
        ("GET", "/a", "text/html"),
        ("GET", "", f"application/json;as=Unknown;{_META}"),
        ("GET", "", f"application/json;as=PartialObjectMetadata;{_META}"),
        ("GET", "/a", f"application/json;as=PartialObjectMetadataList;{_META}"),
        ("GET", "?watch=1", "application/yaml"),
        ("GET", "?includeObject=Everything", _TABLE),
        ("OPTIONS", "/a", None),
        ("POST", "/a", None),
        ("PUT", "", None),
        ("PATCH", "", None),
    ],
)
def test_R1_requests_are_refused_in_the_same_words(
    aggregated: Front, crowd: Team, method: str, path: str, accept: str | None
) -> None:
    ours, theirs = _both(aggregated, crowd, path, method=method, accept=accept)
    assert theirs.status_code >= 400, "native resources take it"
    assert (ours.status_code, _told(ours)) == (theirs.status_code, _told(theirs))
    assert ours.headers["content-type"] == theirs.headers["content-type"]
