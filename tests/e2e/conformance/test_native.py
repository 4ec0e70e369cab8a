"""The same requests to the TrainJobs themselves, which kube-apiserver serves, and to their progress.

Only a real one can be compared with; the stand-in would be our own opinion twice.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.processes import wait_until
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import TRAINER, Workspace

_TRAINER = TRAINER.split("/")[2]
_META = "g=meta.k8s.io;v=v1"
_TABLE = f"application/json;as=Table;{_META}"


@pytest.fixture(scope="module", autouse=True)
def _only_a_real_one_counts(cluster: Cluster) -> None:
    if cluster.kind == "local":
        pytest.skip("the stand-in's word proves nothing about kube-apiserver")


@pytest.fixture(scope="module")
def crowd(shared: Workspace, jobs: QuietJobs) -> Workspace:
    """A namespace with seven jobs that no test changes."""
    for name in "bafceg":
        jobs.create(name, {"model": "bert" if name in "ab" else "gpt"})
    jobs.create("d", is_suspended=True)
    jobs.wait_served(*"abcdefg")
    return shared


def _both(
    crowd: Workspace, path: str, *, method: str = "GET", accept: str | None = None, **query: str
) -> tuple[httpx.Response, httpx.Response]:
    """Our answer and the native one, both through kube-apiserver and by the same user."""
    native = f"{TRAINER}/namespaces/{crowd.name}/trainjobs"
    headers = {} if accept is None else {"Accept": accept}
    asked = f"{path}?{urlencode(query)}" if query else path
    ours, theirs = (
        crowd.admin.api.raw(method, base + asked, headers=headers) for base in (crowd.collection, native)
    )
    return ours, theirs


def _told(answer: httpx.Response) -> Any:
    """The body; the native group is called ours, and protobuf, which we do not serve, is left out."""
    text = re.sub(r",\s+application/vnd.kubernetes.protobuf(;stream=watch)?", "", answer.text)
    text = text.replace(_TRAINER, GROUP) if GROUP not in text else text
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
        {"timeout": "x"},
        {"timeout": "5"},
    ],
    ids=lambda query: " ".join(f"{key}={value:.20}" for key, value in query.items()),
)
def test_L4_R1_options_are_refused_in_the_same_words(crowd: Workspace, query: dict[str, str]) -> None:
    ours, theirs = _both(crowd, "", **query)
    assert theirs.status_code >= 400, "native resources take it"
    assert (ours.status_code, _told(ours)) == (theirs.status_code, _told(theirs))


@pytest.mark.parametrize(
    "query",
    [
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
    ],
    ids=lambda query: " ".join(f"{key}={value:.20}" for key, value in query.items()),
)
def test_L4_R1_what_cannot_be_read_is_refused_for_the_same_reason(
    crowd: Workspace, query: dict[str, str]
) -> None:
    """L7, L15, L16, L19, in words of our own."""
    ours, theirs = _both(crowd, "", **query)
    assert ours.status_code == theirs.status_code == 400
    assert ours.json()["reason"] == theirs.json()["reason"] == "BadRequest"


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("GET", "/nobody", None),
        ("GET", "/nobody", "application/yaml"),
        ("GET", "/nobody", _TABLE),
        ("GET", "/a?export=true", None),
        ("GET", "/a", "text/html"),
        ("GET", "", f"application/json;as=Unknown;{_META}"),
        ("GET", "?watch=1", "application/yaml"),
        ("GET", "?includeObject=Everything", _TABLE),
    ],
)
def test_R1_requests_are_refused_in_the_same_words(
    crowd: Workspace, method: str, path: str, accept: str | None
) -> None:
    ours, theirs = _both(crowd, path, method=method, accept=accept)
    assert theirs.status_code >= 400, "native resources take it"
    assert (ours.status_code, _told(ours)) == (theirs.status_code, _told(theirs))
    assert ours.headers["content-type"] == theirs.headers["content-type"]


_INFORMER = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def _outline(event: Object) -> Object:
    """What of an event does not depend on the resource."""
    thing = event["object"]
    if event["type"] == "ERROR":
        return event | {"object": thing | {"message": re.sub(r"\d+", "N", thing["message"])}}
    found: Object = {
        "type": event["type"],
        "kind": thing["kind"].removesuffix("Progress"),
        "version": re.sub(rf"^{_TRAINER}", GROUP, thing["apiVersion"]),
        "keys": sorted(thing.keys() - {"spec", "status"}),
        "name": thing["metadata"].get("name"),
        "annotations": thing["metadata"].get("annotations"),
    }
    if thing["kind"] == "Table":
        found["has columns"] = bool(thing["columnDefinitions"])
        found["rows"] = [
            (sorted(row.keys() - {"conditions"}), sorted(row["object"]), row["object"]["metadata"]["name"])
            for row in thing["rows"]
        ]
        found["is numbered as its row"] = [thing["metadata"]["resourceVersion"]] == [
            row["object"]["metadata"]["resourceVersion"] for row in thing["rows"]
        ]
    return found


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        (_INFORMER, None),
        (_INFORMER, f"application/json;as=PartialObjectMetadata;{_META}"),
        (_INFORMER, _TABLE),
        (_INFORMER | {"labelSelector": "model=bert"}, None),
        (_INFORMER | {"fieldSelector": "metadata.name=nobody"}, None),
        ({"resourceVersion": "0"}, None),
        ({"resourceVersion": "0"}, _TABLE),
        ({"resourceVersion": "0"}, f"application/json;as=PartialObjectMetadata;{_META}"),
        ({"resourceVersion": "0", "labelSelector": "model=bert"}, None),
        ({"resourceVersion": "0", "fieldSelector": "metadata.name=a"}, _TABLE),
        ({"resourceVersion": "0", "allowWatchBookmarks": "true"}, None),
        ({"resourceVersion": "1"}, None),
        ({"resourceVersion": "1"}, _TABLE),
    ],
)
def test_W1_W8_W15_watches_tell_the_same_story(
    crowd: Workspace, query: dict[str, str], accept: str | None
) -> None:
    def tell_the_same() -> bool:
        """Within a second, in which both can say all they have to, unless the machine stands still."""
        told: list[list[Object]] = []
        for answer in _both(crowd, "", accept=accept, watch="1", timeoutSeconds="1", **query):
            assert answer.status_code == 200
            told.append([_outline(json.loads(line)) for line in answer.text.splitlines()])
        if told[1][:1] and "RequestWatchProgress" in str(told[1][0]):
            pytest.skip("this etcd is too old for kube-apiserver to send initial events of its own")
        assert told[0] == told[1]
        return True

    wait_until(tell_the_same, what="both watches say the same")


@pytest.mark.parametrize(
    "accept",
    [_TABLE, f"application/json;as=PartialObjectMetadataList;{_META}", "application/json"],
)
def test_L1_L12_pages_have_the_same_shape(crowd: Workspace, accept: str) -> None:
    ours, theirs = (answer.json() for answer in _both(crowd, "", accept=accept, limit="3"))
    assert ours.keys() == theirs.keys()
    assert ours["metadata"].keys() == theirs["metadata"].keys()
    assert ours["metadata"]["remainingItemCount"] == theirs["metadata"]["remainingItemCount"] == 4
    key = "rows" if "rows" in ours else "items"
    assert len(ours[key]) == len(theirs[key]) == 3
    for one, other in zip(ours[key], theirs[key], strict=True):
        assert one.keys() - {"status"} == other.keys() - {"spec", "status"}
