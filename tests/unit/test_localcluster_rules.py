"""The local cluster's pure parts: selectors, patches, protobuf bodies, ages, Jobs and JobSets."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from localcluster.apiserver import protobuf
from localcluster.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from localcluster.apiserver.request_info import parse_request
from localcluster.controllers import jobs, jobsets
from localcluster.controllers.runtimes import DEEPSPEED, TORCH
from localcluster.controllers.trainjobs import jobset_for
from localcluster.kubelet.containers import environment, path_below
from localcluster.machinery.metadata import labels_of
from localcluster.machinery.resources import BY_PLURAL
from localcluster.machinery.selectors import field_selector, field_terms, label_selector
from localcluster.machinery.status import ApiError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "x", "labels": labels}}


def refusal(call: Callable[[], object]) -> int | None:
    """The code of the refusal; None when the call went well. Any other exception fails the test."""
    try:
        call()
    except ApiError as error:
        return error.code
    return None


# Selectors


@pytest.mark.parametrize(
    ("selector", "matching", "other"),
    [
        ("a", labelled(a=""), labelled(b="1")),
        ("!a", labelled(b="1"), labelled(a="1")),
        ("a=1", labelled(a="1"), labelled(a="2")),
        ("a==1,b!=2", labelled(a="1"), labelled(a="1", b="2")),
        ("a=", labelled(a=""), labelled()),
        ("a in (1, 2),b notin (3)", labelled(a="2"), labelled(a="2", b="3")),
        ("a in ()", labelled(a=""), labelled(a="1")),
        ("a>3", labelled(a="4"), labelled(a="three")),
        ("a<3", labelled(a="2"), labelled()),
        ("x.io/y-z_1=v", {"metadata": {"labels": {"x.io/y-z_1": "v"}}}, labelled()),
    ],
)
def test_a_label_selector_matches_what_it_says(selector: str, matching: Any, other: Any) -> None:
    matches = label_selector(selector)
    assert matches(matching)
    assert not matches(other)


@pytest.mark.parametrize("text", ["a in 1", "a in (", "=b", "a=b c", "a>b", "(a)", "a in (b))"])
def test_a_label_selector_that_does_not_parse_is_400(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        label_selector(text)
    assert refused.value.code == 400


def test_field_selectors_read_escapes_and_nested_fields() -> None:
    assert field_terms(r"metadata.name=a\,b\=c,spec.nodeName!=n") == [
        ("metadata.name", "=", "a,b=c"),
        ("spec.nodeName", "!=", "n"),
    ]
    matches = field_selector(BY_PLURAL["pods"], "spec.nodeName=,status.phase=Running")
    assert matches({"metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Running"}})
    with pytest.raises(ApiError, match="field label not supported"):
        field_selector(BY_PLURAL["pods"], "spec.image=x")


# Requests


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "pods", "", "")),
        ("GET", "/api/v1/namespaces/a/pods", {"watch": ""}, ("watch", "a", "pods", "", "")),
        ("GET", "/api/v1/namespaces/a/pods", {"watch": "False"}, ("list", "a", "pods", "", "")),
        ("GET", "/api/v1/namespaces/a", {}, ("get", "a", "namespaces", "a", "")),
        ("PUT", "/api/v1/namespaces/a/status", {}, ("update", "a", "namespaces", "a", "status")),
        ("DELETE", "/apis/g/v1/namespaces/a/things", {}, ("deletecollection", "a", "things", "", "")),
        ("POST", "/api/v1/namespaces/a/pods/p/exec", {}, ("create", "a", "pods", "p", "exec")),
        ("GET", "/apis/g/v1/things", {"fieldSelector": "metadata.name=n"}, ("list", "", "things", "n", "")),
        ("GET", "/apis/g/v1/things/a%2Fb", {}, ("get", "", "things", "a/b", "")),
    ],
)
def test_a_path_is_read_as_kubernetes_reads_it(
    method: str, path: str, query: dict[str, str], expected: tuple[str, ...]
) -> None:
    info = parse_request(method, path, query)
    assert (info.verb, info.namespace, info.resource, info.name, info.subresource) == expected


# Patches


@given(JSON, JSON)
def test_a_merge_patch_leaves_its_input_alone_and_is_idempotent(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before


def test_json_patch_operations() -> None:
    operations = [
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "replace", "path": "/a/0", "value": 2},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "move", "from": "/b/1", "path": "/c~1d"},
        {"op": "remove", "path": "/a"},
    ]
    assert json_patch({"a": [1]}, operations) == {"b": [2], "c/d": 3}


def test_a_strategic_patch_joins_lists_by_their_key() -> None:
    target = {"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "args": ["x", "y"]}
    patch = {
        "containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}, {"name": "c"}],
        "$setElementOrder/containers": [{"name": "a"}],
        "args": ["z"],
    }
    assert strategic_merge_patch(target, patch) == {
        "containers": [{"name": "a", "image": "2"}, {"name": "c"}],
        "args": ["z"],
    }


# Protobuf


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, api_version.encode()) + field(2, kind.encode())) + field(2, raw)


def test_a_protobuf_secret_becomes_json() -> None:
    meta = field(1, b"s") + field(3, b"ns") + field(2, b"") + field(11, field(1, b"k") + field(2, b"v"))
    raw = field(1, meta) + field(2, field(1, b"key") + field(2, b"\xff")) + field(3, b"Opaque")
    assert protobuf.decode(envelope("v1", "Secret", raw)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "ns", "labels": {"k": "v"}},
        "data": {"key": base64.b64encode(b"\xff").decode()},
        "type": "Opaque",
    }


# Tables


# Jobs and JobSets


def job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "node"}], "restartPolicy": "Never"}}
    wanted = {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": template} | spec
    meta = {"name": "j", "namespace": "ns", "uid": "u"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": wanted}


def with_phase(pod: dict[str, Any], phase: str) -> dict[str, Any]:
    return pod | {"status": {"phase": phase}}


def test_only_missing_indexes_are_created() -> None:
    wanted = job()
    first, second, third = jobs.pods_to_create(wanted, [])
    present = [with_phase(first, "Succeeded"), with_phase(second, "Failed"), with_phase(third, "Running")]
    again = jobs.pods_to_create(wanted, present)
    assert [pod["metadata"]["annotations"][jobs.COMPLETION_INDEX] for pod in again] == ["1"]


def test_restarts_in_place_count_towards_the_backoff_limit() -> None:
    template = {"spec": {"containers": [{"name": "node"}], "restartPolicy": "OnFailure"}}
    wanted = job(parallelism=1, completions=1, backoffLimit=2, template=template)
    pod = jobs.pods_to_create(wanted, [])[0]
    for restarts, failed in ((1, False), (2, True)):
        pod["status"] = {"phase": "Running", "containerStatuses": [{"restartCount": restarts}]}
        assert jobs.has_failed(wanted, [pod]) is failed


@pytest.mark.parametrize(
    ("runtime", "nodes", "sizes"),
    [(TORCH, 4, [4]), (DEEPSPEED, 1, [1, 1]), (DEEPSPEED, 2, [1, 1]), (DEEPSPEED, 4, [3, 1])],
)
def test_num_nodes_becomes_pods_as_the_runtime_counts_them(
    runtime: Any, nodes: int, sizes: list[int]
) -> None:
    train_job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t", "namespace": "ns", "uid": "u"},
        "spec": {"trainer": {"numNodes": nodes, "env": [{"name": "A", "value": "1"}]}},
    }
    before = copy.deepcopy(runtime)
    jobset = jobset_for(train_job, runtime)
    assert [each["template"]["spec"]["completions"] for each in jobset["spec"]["replicatedJobs"]] == sizes
    assert runtime == before


def test_a_job_waits_for_those_it_depends_on() -> None:
    def replicated(name: str, **rest: Any) -> dict[str, Any]:
        return {"name": name, "replicas": 1, "template": {"spec": {"template": {"spec": {}}}}} | rest

    waiting = replicated("node", dependsOn=[{"name": "init", "status": "Complete"}])
    meta = {"name": "s", "namespace": "ns", "uid": "u"}
    jobset = {
        "apiVersion": "x",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"replicatedJobs": [replicated("init"), waiting]},
    }
    (first,) = jobsets.wanted_jobs(jobset, [])
    assert first["metadata"]["name"] == "s-init-0"
    first["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    _, second = jobsets.wanted_jobs(jobset, [first])
    assert labels_of(second)["jobset.sigs.k8s.io/job-global-index"] == "1"


# Containers


@given(st.text(max_size=30))
def test_no_path_leaves_the_containers_root(path: str) -> None:
    root = Path("/pods/one")
    assert path_below(root, path).is_relative_to(root)


def test_the_environment_is_mapped_expanded_and_told_where_to_report() -> None:
    pod = {"metadata": {"name": "p", "labels": {"a.b/c": "seven"}}, "spec": {}}
    spec = {
        "name": "c",
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        "env": [
            {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a.b/c']"}}},
            {"name": "URL", "value": "http://$(INDEX)/$(UNSET)"},
            {"name": "INPUT", "value": "/data/set"},
            {"name": "ELSEWHERE", "value": "/database"},
        ],
    }
    found = environment(pod, spec, Path("/root"), {})
    assert found["URL"] == "http://seven/$(UNSET)"
    assert (found["INPUT"], found["ELSEWHERE"]) == ("/root/data/set", "/database")
    assert found["TRAINJOB_PROGRESS_FILE"] == "/root/tmp/trainjob-progress.json"
    assert found["TRAINJOB_TERMINATION_MESSAGE_PATH"] == "/root/dev/termination-log"
