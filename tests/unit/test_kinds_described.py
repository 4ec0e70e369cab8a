"""Kinds that a file describes: what is accepted, what is said of a fault, and what a job of one shows."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, strategies as st
from msgspec.structs import replace

from apidocs.__main__ import PUBLISHED
from tests.configmap import ConfigMapDirectory
from tests.jobs import document
from visibility_api.app.openapi import of_resources, read_published
from visibility_api.flowcontrol.slices import in_slices
from visibility_api.jobs.job import Phase, TrainingJob
from visibility_api.kinds import KINDS, RESOURCES, Kinds
from visibility_api.kinds.described.expressions import (
    MAX_CHARACTERS,
    MAX_ITEMS,
    Expression,
    ExpressionFault,
    Seen,
)
from visibility_api.kinds.described.files import MAX_FILE_BYTES, MAX_KINDS, Described, read_kinds
from visibility_api.kinds.described.kind import DescribedKind
from visibility_api.kinds.described.model import read_description
from visibility_api.kinds.described.table import KindTable
from visibility_api.kubeapi.v1alpha1 import Codec
from visibility_api.pushing.paths import find_target
from visibility_api.workloads.inventory import Inventory

SLURM: dict[str, Any] = {
    "group": "slurm.example.com",
    "version": "v1",
    "resource": "slurmjobs",
    "kind": "SlurmJob",
    "shortName": "slurmp",
    "rank0": {
        "selector": "slurm.example.com/rank=0",
        "name": "{owner}-0",
        "container": "main",
        "allPods": "slurm.example.com/job={job}",
    },
    "conditions": {"succeeded": "Complete", "failed": "Failed"},
    "phase": "object.status.state == 'HELD' ? 'Suspended' : object.status.state == 'QUEUED' ? 'Pending' : ''",
    "reason": "object.status.reason",
    "message": "object.status.message",
    "groups": [{"name": "node", "replicas": "object.spec.nodes", "template": "object.spec.template"}],
}
JOB: dict[str, Any] = {
    "metadata": {"name": "bert", "namespace": "team-a", "uid": "s1", "labels": {"team": "nlp"}},
    "spec": {
        "nodes": 4,
        "template": {
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}
        },
    },
}


def pod(name: str = "bert-0", owner: str = "s1", kind: str = "SlurmJob") -> dict[str, Any]:
    reference = {"kind": kind, "name": "bert", "uid": owner, "controller": True, "blockOwnerDeletion": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid of {name}",
            "ownerReferences": [reference],
        },
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "sidecar"}, {"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    }


class Shown:
    """What an inventory makes of the objects of one described kind."""

    def __init__(self, **changes: Any) -> None:
        self.kind = DescribedKind(read_description(SLURM | changes))
        self.jobs: dict[str, TrainingJob] = {}
        self.inventory = Inventory(
            (self.kind,),
            on_job=lambda job, _: self.jobs.update({str(job.ref): job}),
            on_gone=lambda _: None,
        )

    async def job(self, status: Any = None, *pods: Any, **made: Any) -> TrainingJob:
        """`made`: objects between the job and its pods, by their kind."""
        for objects in self.inventory.collections:
            found = {
                "SlurmJob": [JOB | ({"status": status} if status is not None else {})],
                "Pod": pods,
            } | made
            listed = [msgspec.convert(each, objects.type) for each in found.get(objects.kind, ())]
            await self.inventory.list(objects, in_slices(listed))
        return self.jobs["slurmjobs/team-a/bert"]


async def test_a_described_kind_shows_what_a_built_in_one_does() -> None:
    job = await Shown().job({"state": "RUNNING"}, pod())
    assert (job.phase, job.reason) == (Phase.RUNNING, "Rank0Running")
    assert job.labels == {"team": "nlp"}
    assert job.rank0 is not None
    assert (job.rank0.pod_name, job.rank0.container_name) == ("bert-0", "main")
    assert (job.replicas[0].name, job.replicas[0].desired) == ("node", 4)
    assert job.accelerators == (("nvidia.com/gpu", 8),)
    assert not job.hints.faults


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, (Phase.PENDING, "NoPod", "The rank-0 pod does not exist yet.")),
        (
            {"state": "QUEUED", "reason": "Priority", "message": "3 before it"},
            ("Pending", "Priority", "3 before it"),
        ),
        ({"state": "HELD"}, ("Suspended", "Suspended", "")),
        ({"state": 7}, (Phase.PENDING, "NoPod", "The rank-0 pod does not exist yet.")),
        (
            {"conditions": [{"type": "Complete", "status": "True", "reason": "Done"}]},
            (Phase.SUCCEEDED, "Done", ""),
        ),
        (
            {"conditions": [{"type": "Failed", "status": "True", "message": "node lost"}, 7, {"type": {}}]},
            (Phase.FAILED, "Failed", "node lost"),
        ),
    ],
)
async def test_phase_and_conditions_are_those_of_its_status(
    status: Any, expected: tuple[str, str, str]
) -> None:
    job = await Shown().job(status)
    assert (job.phase, job.reason, job.message) == expected


async def test_an_expression_without_a_value_is_said_where_the_job_is_shown() -> None:
    job = await Shown(
        phase="object.status.state + 1", groups=[{"name": "node", "replicas": "object.metadata.name"}]
    ).job({"state": "x"}, pod())
    assert job.phase is Phase.RUNNING
    assert [fault.split(" has no value")[0] for fault in job.hints.faults] == [
        "`phase` of kind SlurmJob",
        "`groups.node.replicas` of kind SlurmJob",
    ]
    other = await Shown(phase="string(object.status.state)").job({"state": "Odd"})
    assert other.hints.faults == (
        "`phase` of kind SlurmJob is none of Succeeded, Failed, Suspended, Pending, Initializing, Running.",
    )


async def test_columns_of_its_own_are_shown_beside_those_of_all_kinds() -> None:
    columns = [
        {"name": "Queue", "value": "object.status.queue"},
        {"name": "Nodes", "value": "object.spec.nodes"},
        {"name": "Missing", "value": "object.spec.colour"},
    ]
    shown = Shown(columns=columns)
    job = await shown.job({"queue": "night" + "\x1b[31m"})
    assert job.columns == ("night\ufffd[31m", "4", "")
    codec = Codec(shown.kind.served)
    assert [each.name for each in codec.columns[-3:]] == ["Queue", "Nodes", "Missing"]
    cells = codec.trailing_cells(replace(document("bert"), job=job))
    assert list(cells[-3:]) == ["night\ufffd[31m", "4", None]
    fewer = codec.trailing_cells(replace(document("bert"), job=replace(job, columns=("night",))))
    assert list(fewer[-3:]) == ["night", None, None]


async def test_what_is_between_a_job_and_its_pods_is_followed_by_owners() -> None:
    owners = [
        {"group": "batch", "version": "v1", "resource": "jobs", "kind": "Job",
         "selector": "slurm.example.com/job", "name": "object.metadata.name + '-launch'"}
    ]  # fmt: skip
    rank0 = {"selector": "slurm.example.com/rank=0", "name": "{owner}-*"}
    made = {"metadata": pod("bert-launch")["metadata"]}
    first = pod("bert-launch-x1y2z", "uid of bert-launch", "Job")
    job = await Shown(owners=owners, rank0=rank0).job(None, first, Job=[made])
    assert job.rank0 is not None
    assert (job.rank0.pod_name, job.rank0.container_name) == ("bert-launch-x1y2z", "sidecar")
    forged = await Shown(owners=owners, rank0=rank0).job(None, pod("bert-launch-x1y2z"), Job=[made])
    assert forged.rank0 is None


async def test_a_pod_whose_name_is_not_that_of_rank_0_or_whose_owner_is_another_is_not_read() -> None:
    job = await Shown().job(None, pod("bert-1"), pod("mine"), pod("bert-0", owner="s2"))
    assert job.rank0 is None


async def test_every_pod_of_a_failed_job_is_found_by_its_labels_and_owner() -> None:
    shown = Shown()
    job = await shown.job(None, pod())
    pods = shown.inventory.all_pods(job.ref)
    assert pods is not None
    assert pods.selector == "slurm.example.com/job=bert"
    types = {objects.kind: objects.type for objects in shown.inventory.collections}
    found = pods.replica(msgspec.convert(pod("bert-7"), types["Pod"]), {})
    assert found is not None
    assert found.name == "bert-7"
    assert pods.replica(msgspec.convert(pod("bert-7", owner="s2"), types["Pod"]), {}) is None


def described(*documents: Any, before: Described = Described(), path: Path) -> Described:  # noqa: B008 - immutable
    text = "---\n".join(each if isinstance(each, str) else yaml.safe_dump(each) for each in documents)
    path.write_text(text)
    return read_kinds(path, RESOURCES, before)


def without(*names: str, **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (SLURM | changes).items() if name not in names}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ("{", "kinds.yaml: is not valid YAML in line 1"),
        ("a: &x [1]\nb: *x", "kinds.yaml: has anchors or aliases; write their values out"),
        ("[" * 600, "kinds.yaml: is nested too deeply"),
        ("x" * (MAX_FILE_BYTES + 1), f"kinds.yaml: has more than {MAX_FILE_BYTES} bytes; split it"),
        ("7", "kinds.yaml: document 1: give the fields of one kind, such as `kind: SlurmJob`"),
        (without("kind"), "kinds.yaml: document 1: kind: is missing; give it"),
        (without(colour="red"), "kinds.yaml: SlurmJob: colour: there is no such field; see docs/kinds.md"),
        (without(group="apps"), 'SlurmJob: group: "apps" cannot be used; write for instance example.com'),
        (without(version=1), "kinds.yaml: SlurmJob: version: input should be a valid string"),
        (
            without(resource="Slurm/jobs"),
            'resource: "Slurm/jobs" cannot be used; write for instance',
        ),
        (without(rank0={"selector": "a in b"}), 'rank0.selector: "a in b" is no label selector'),
        (without(rank0={"selector": ""}), 'rank0.selector: "" is no label selector'),
        (
            without(rank0={"selector": "a", "name": "*"}),
            'rank0.name: "*" cannot be used; write',
        ),
        (without(groups=[]), "groups: tuple should have at least 1 item"),
        (without(phase=3), "phase: give a CEL expression as text"),
        (without(phase="object.status ="), "phase: is no CEL expression"),
        (without(phase="string(object.a.matches('(a+)+$'))"), "calls matches; what can be called: size, "),
        (without(phase="bogus(object)"), "phase: calls bogus"),
        (without(phase="other.status"), "does not read object; write for instance object.status.phase"),
        (without(phase="string(object.a.map(x, x))"), "makes a list with map; use filter"),
        (without(phase="object.a" + " + object.a" * 9), "has more than 8 additions"),
        (without(phase="object.a + " * 100), f"has 1100 characters; at most {MAX_CHARACTERS} are"),
        (
            without(phase="object.a.all(x, object.a.exists(y, x == y)) ? '' : ''"),
            "phase: has a loop within a loop (all, exists, exists_one, filter)",
        ),
        (without(phase="object.a == r'\\' || object.b == '.all('"), "has a raw, a bytes or a triple-quoted"),
        (without(shortName="tjp"), '"tjp" is the name of a built-in kind; give another one as shortName'),
        (without(resource="pytorchjobs"), '"pytorchjobs" is the name of a built-in kind'),
        (without(kind="TrainJob"), '"TrainJobProgress" is the name of a built-in kind'),
    ],
)
def test_a_fault_says_which_file_kind_and_field_has_it_and_what_to_do(
    tmp_path: Path, document: Any, fault: str
) -> None:
    """And costs that kind alone."""
    good = SLURM | {"kind": "FlinkJob", "resource": "flinkjobs", "shortName": "flinkp"}
    (tmp_path / "other.yml").write_text(yaml.safe_dump(good))
    described(document, path=tmp_path / "kinds.yaml")
    found = read_kinds(tmp_path, RESOURCES, Described())
    assert fault in found.faults[0]
    assert len(found.faults) == 1
    assert [kind.served.plural for kind in found.kinds] == ["flinkjobs"]


def test_a_name_that_is_taken_may_be_given_another_way(tmp_path: Path) -> None:
    taken = without(resource="jobs", kind="Job", servedResource="slurmjobs", servedKind="SlurmJob")
    found = described(taken, path=tmp_path / "kinds.yaml")
    assert not found.faults
    (kind,) = found.kinds
    assert (kind.served.plural, kind.served.kind) == ("slurmjobs", "SlurmJobProgress")
    assert (kind.own[0].path(None), kind.own[0].shown_as) == ("/apis/slurm.example.com/v1/jobs", "slurmjobs")


def test_what_was_read_last_stays_where_a_fault_comes(tmp_path: Path) -> None:
    path = tmp_path / "kinds.yaml"
    flink = SLURM | {"kind": "FlinkJob", "resource": "flinkjobs", "shortName": "flinkp"}
    first = described(SLURM, flink, path=path)
    broken = described(without(phase="?"), flink, before=first, path=path)
    assert broken.kinds == first.kinds
    assert broken.faults[0].endswith("; what was read before stays")
    unreadable = described("{", before=broken, path=path)
    assert unreadable.kinds == first.kinds
    fewer = described(flink, before=unreadable, path=path)
    assert fewer.kinds == first.kinds[1:]
    path.unlink()
    gone = read_kinds(path, RESOURCES, fewer)
    assert (gone.kinds, len(gone.faults)) == (fewer.kinds, 1)


def test_only_what_has_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "kinds.yaml"
    flink = SLURM | {"kind": "FlinkJob", "resource": "flinkjobs", "shortName": "flinkp"}
    first = described(SLURM, flink, path=path)
    second = described(SLURM, flink | {"version": "v2"}, before=first, path=path)
    assert second.kinds[0] is first.kinds[0]
    assert second.kinds[1] is not first.kinds[1]


def test_two_kinds_of_one_name_and_too_many_kinds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kinds.yaml"
    found = described(SLURM, SLURM, path=path)
    assert len(found.kinds) == 1
    assert '"slurmjobs" is the name of SlurmJob in kinds.yaml' in found.faults[0]
    letters = [chr(ord("a") + number) for number in range(MAX_KINDS + 1)]
    many = [
        SLURM | {"kind": f"Slurm{each.upper()}", "resource": f"slurm{each}jobs", "shortName": f"slurm{each}"}
        for each in letters
    ]
    found = described(*many, path=path)
    assert len(found.kinds) == MAX_KINDS
    assert found.faults == (
        f"kinds.yaml: SlurmQ: {MAX_KINDS} kinds are described already; no more are served",
    )


async def test_a_mounted_configmap_is_read_again_when_it_changes(tmp_path: Path) -> None:
    directory = ConfigMapDirectory(tmp_path)
    table = KindTable(tmp_path)
    assert not table.load()
    directory.write("slurm.yaml", yaml.safe_dump(SLURM))
    changes: asyncio.Queue[list[str]] = asyncio.Queue()

    async def changed() -> None:
        changes.put_nowait([each.plural for each in table.now.resources if each not in RESOURCES])

    following = asyncio.create_task(table.follow(changed, interval_s=0))
    assert await changes.get() == ["slurmjobs"]
    directory.write("slurm.yaml", "{")
    flink = SLURM | {"kind": "FlinkJob", "resource": "flinkjobs", "shortName": "flinkp"}
    directory.write("flink.yaml", yaml.safe_dump(flink))
    assert await changes.get() == ["flinkjobs", "slurmjobs"]
    assert table.faults == ("slurm.yaml: is not valid YAML in line 1",)
    directory.write("slurm.yaml", None)
    assert await changes.get() == ["flinkjobs"]
    assert not table.faults
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def test_a_described_kind_has_a_push_path_of_its_own_while_it_is_described() -> None:
    kind = DescribedKind(read_description(SLURM))
    path = "/apis/visibility.trainer.kubeflow.org/v1alpha1/namespaces/team-a/slurmjobs/bert/status"
    target = find_target(path, Kinds((*KINDS, kind)))
    assert target is not None
    assert (target.resource, target.kind_name, target.name) == ("slurmjobs", "SlurmJob", "bert")
    assert find_target(path) is None


def test_the_published_api_has_a_described_kind_as_it_has_a_built_in_one() -> None:
    kind = DescribedKind(read_description(SLURM))
    for name in ("v2.json", "v3.json"):
        published = read_published(name)
        made = msgspec.json.decode(published)
        found = of_resources(made, (*PUBLISHED, kind.served))
        copied = msgspec.json.encode({key: path for key, path in made["paths"].items() if "jaxjobs" in key})
        wanted = msgspec.json.decode(copied.replace(b"jaxjobs", b"slurmjobs").replace(b"JAXJob", b"SlurmJob"))
        assert found["paths"] == made["paths"] | wanted
        schemas = found["components"]["schemas"] if name == "v3.json" else found["definitions"]
        references = re.findall(
            r'"#/(?:components/schemas|definitions)/([^"]+)"', str(wanted).replace("'", '"')
        )
        assert references
        assert set(references) <= set(schemas)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)


@given(document=_JSON | st.dictionaries(st.sampled_from(sorted(SLURM)), _JSON).map(lambda some: SLURM | some))
def test_whatever_a_file_says_is_a_kind_or_a_fault(document: Any) -> None:
    with suppress(ValueError):
        DescribedKind(read_description(document))


@given(content=st.binary(max_size=60) | st.text(alphabet="ab:-[]{}&*!'\"\n |>0123456789.#%", max_size=60))
def test_whatever_bytes_a_file_has_it_is_read(content: bytes | str) -> None:
    """A fault of a file must not end the process."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "kinds.yaml")
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert not read_kinds(file, RESOURCES, Described()).kinds


@given(text=st.text(alphabet="object.status()[]{}'\"\\!?:&|=<>+-*/%,0123456789 \n\t\x00é", max_size=80))
def test_whatever_an_expression_is_it_has_a_value_or_a_fault(text: str) -> None:
    with suppress(ExpressionFault):
        Expression(text).evaluate(Seen({"metadata": {}, "spec": None, "status": {"s": "o"}}))


@given(spec=_JSON, status=_JSON)
def test_whatever_a_job_says_it_is_shown(spec: Any, status: Any) -> None:
    """Its owner writes it, and no job may end the watch of the others."""
    kind = DescribedKind(read_description(SLURM | {"since": "timestamp(object.status.at)"}))
    body = msgspec.json.encode(JOB | {"spec": spec, "status": status})
    read = msgspec.json.decode(body, type=kind.own[0].type)
    packed = msgspec.msgpack.encode(read)
    assert msgspec.msgpack.decode(packed, type=kind.own[0].type) == read
    assert len(packed) < 16_384


def test_what_an_expression_costs_does_not_grow_with_the_object() -> None:
    loop = " || ".join(["x.a == 'y'"] * 30)
    expression = Expression(f"object.status.l.exists(x, {loop})")

    def cost(items: int) -> float:
        seen = Seen({"status": {"l": [{"a": "x" * 1_000} for _ in range(items)]}})
        began = time.process_time()
        for _ in range(5):
            assert expression.evaluate(seen) is False
        assert seen.is_whole == (items <= MAX_ITEMS)
        return time.process_time() - began

    assert min(cost(50_000) for _ in range(5)) < 5 * max(cost(MAX_ITEMS) for _ in range(5))


def test_no_server_without_described_kinds_loads_the_library() -> None:
    code = "import sys, visibility_api.assembly; sys.exit('cel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
