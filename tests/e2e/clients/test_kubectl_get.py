"""`kubectl get` and its companions, as people and scripts type them."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import Workspace

_LABELS = {
    "bert": {"model": "bert", "tier": "gold"},
    "gpt": {"model": "gpt"},
    "llama": {"model": "llama", "tier": "gold"},
    "whisper": {"model": "whisper", "tier": "silver"},
}


@pytest.fixture(scope="module")
def team(shared: Workspace, jobs: QuietJobs) -> Workspace:
    """bert and gpt are pending, llama has completed and whisper is suspended."""
    for name, labels in _LABELS.items():
        jobs.create(name, labels, is_suspended=name == "whisper")
    jobs.end("llama")
    jobs.wait_served(*_LABELS)
    jobs.wait_phase("llama", "Succeeded")
    return shared


def get(team: Workspace, *arguments: str) -> str:
    """What kubectl prints; it must have nothing to complain about."""
    answer = team.alice.kubectl("get", "tjp", "-n", team.name, *arguments)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout


def rows(printed: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.rstrip()) for line in printed.splitlines()]


def names(printed: str) -> list[str]:
    return [row[0] for row in rows(printed)]


def test_the_default_output_is_one_line_a_job_under_our_columns(team: Workspace) -> None:
    header, *lines = rows(get(team))
    assert header == ["NAME", "PHASE", "PROGRESS", "STEP", "LOSS", "ETA", "SEEN", "AGE"]
    assert [line[:2] for line in lines] == [
        ["bert", "Pending"],
        ["gpt", "Pending"],
        ["llama", "Succeeded"],
        ["whisper", "Suspended"],
    ]
    assert all(re.fullmatch(r"\d+s|\d+m(\d+s)?", line[-1]) for line in lines), lines


def test_wide_output_adds_what_explains(team: Workspace) -> None:
    header, *lines = rows(get(team, "-o", "wide"))
    assert header[8:] == [
        "EPOCH",
        "RATE",
        "SOURCE",
        "POD",
        "ACCELERATORS",
        "WASTED",
        "ATTEMPTS",
        "REASON",
        "MESSAGE",
    ]
    waits = "Kubeflow Trainer has not made the JobSet. If that lasts, the TrainJob's events say why."
    assert [line[-2:] for line in lines[:2]] == [["NoJobSet", waits]] * 2
    assert [line[-1] for line in lines[2:]] == ["EndedWithoutReport", "Suspended"]


def test_name_output_can_be_fed_back_to_kubectl(team: Workspace) -> None:
    printed = get(team, "-o", "name").splitlines()
    assert printed == [f"trainjobprogress.{GROUP}/{name}" for name in _LABELS]
    answer = team.alice.kubectl("get", "-n", team.name, "-o", "name", *printed)
    assert (answer.stdout.splitlines(), answer.stderr) == (printed, "")


def test_json_output_is_a_list_of_whole_documents(team: Workspace) -> None:
    document = json.loads(get(team, "-o", "json"))
    assert document["kind"] == "List"  # kubectl's own: it joins what it was given
    assert [item["metadata"]["name"] for item in document["items"]] == list(_LABELS)
    for item in document["items"]:
        assert (item["apiVersion"], item["kind"]) == (f"{GROUP}/v1alpha1", "TrainJobProgress")
        assert item["metadata"]["labels"] == _LABELS[item["metadata"]["name"]]
        assert item["status"]["phase"]


def test_yaml_and_json_output_say_the_same(team: Workspace) -> None:
    as_yaml, as_json = get(team, "bert", "-o", "yaml"), get(team, "bert", "-o", "json")
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_jsonpath_reaches_into_conditions(team: Workspace) -> None:
    path = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="%s")].status} {end}'
    reporting, complete = (get(team, "-o", f"jsonpath={path % type_}") for type_ in ("Reporting", "Complete"))
    assert reporting == "bert=False gpt=False llama=False whisper=False "
    assert complete == "bert= gpt= llama=True whisper= "  # as of the TrainJobs themselves (decision 0007)


def test_custom_columns_are_taken_from_the_documents(team: Workspace) -> None:
    columns = "JOB:.metadata.name,PHASE:.status.phase,STEP:.status.steps.current"
    assert rows(get(team, "-o", f"custom-columns={columns}")) == [
        ["JOB", "PHASE", "STEP"],
        ["bert", "Pending", "<none>"],
        ["gpt", "Pending", "<none>"],
        ["llama", "Succeeded", "<none>"],
        ["whisper", "Suspended", "<none>"],
    ]


@pytest.mark.parametrize(
    ("key", "order"),
    [
        (".status.phase", ["bert", "gpt", "llama", "whisper"]),
        (".metadata.labels.tier", ["gpt", "bert", "llama", "whisper"]),
        ("{.metadata.name}", ["bert", "gpt", "llama", "whisper"]),
    ],
)
def test_sort_by_orders_the_table_by_any_field(team: Workspace, key: str, order: list[str]) -> None:
    assert names(get(team, "--sort-by", key, "--no-headers")) == order


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("tier=gold", ["bert", "llama"]),
        ("tier!=gold", ["gpt", "whisper"]),
        ("tier", ["bert", "llama", "whisper"]),
        ("!tier", ["gpt"]),
        ("model in (bert,gpt),tier notin (silver)", ["bert", "gpt"]),
        ("model=bert,tier=gold", ["bert"]),
    ],
)
def test_label_selectors_choose(team: Workspace, selector: str, found: list[str]) -> None:
    assert names(get(team, "-l", selector, "--no-headers")) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=gpt", ["gpt"]),
        ("metadata.name!=gpt", ["bert", "llama", "whisper"]),
        ("status.phase=Pending", ["bert", "gpt"]),
        ("status.phase!=Pending,metadata.name!=llama", ["whisper"]),
    ],
)
def test_field_selectors_choose(team: Workspace, selector: str, found: list[str]) -> None:
    assert names(get(team, "--field-selector", selector, "--no-headers")) == found


def test_a_field_selector_we_do_not_know_is_refused_with_those_we_do(team: Workspace) -> None:
    answer = team.alice.kubectl("get", "tjp", "-n", team.name, "--field-selector", "spec.x=1")
    assert answer.returncode == 1
    assert answer.stderr.startswith("Error from server (BadRequest): ")
    assert all(known in answer.stderr for known in ("metadata.name", "metadata.namespace", "status.phase"))


def test_all_namespaces_get_a_column_of_their_own(team: Workspace) -> None:
    answer = team.admin.kubectl("get", "tjp", "-A")
    header, *lines = rows(answer.stdout)
    assert header[:3] == ["NAMESPACE", "NAME", "PHASE"]
    assert [line[1:3] for line in lines if line[0] == team.name] == [
        ["bert", "Pending"],
        ["gpt", "Pending"],
        ["llama", "Succeeded"],
        ["whisper", "Suspended"],
    ]


@pytest.mark.parametrize("size", ["1", "3", "500", "0"])
def test_a_list_in_chunks_is_the_whole_list(team: Workspace, size: str) -> None:
    assert names(get(team, f"--chunk-size={size}", "--no-headers")) == list(_LABELS)
    as_json = json.loads(get(team, f"--chunk-size={size}", "-o", "json"))
    assert [item["metadata"]["name"] for item in as_json["items"]] == list(_LABELS)


def test_labels_can_be_shown(team: Workspace) -> None:
    header, *lines = rows(get(team, "--show-labels"))
    assert header[-1] == "LABELS"
    assert [line[-1] for line in lines] == [
        ",".join(f"{key}={value}" for key, value in labels.items()) for labels in _LABELS.values()
    ]


def test_one_label_can_be_a_column(team: Workspace) -> None:
    header, *lines = rows(get(team, "-L", "tier"))
    assert header[-1] == "TIER"
    assert [line[0] for line in lines if line[-1] == "gold"] == ["bert", "llama"]


def test_the_progress_subresource_is_printed_like_the_job(team: Workspace) -> None:
    assert rows(get(team, "llama", "--subresource=progress"))[1][:2] == ["llama", "Succeeded"]
    document = json.loads(get(team, "llama", "--subresource=progress", "-o", "json"))
    assert document == json.loads(get(team, "llama", "-o", "json"))


def test_several_names_are_got_one_by_one(team: Workspace) -> None:
    answer = team.alice.kubectl("get", "tjp", "-n", team.name, "gpt", "nobody", "bert", "--no-headers")
    assert answer.returncode == 1
    assert names(answer.stdout) == ["gpt", "bert"]
    assert answer.stderr == f'Error from server (NotFound): trainjobs.{GROUP} "nobody" not found\n'


def test_a_missing_job_can_be_ignored(team: Workspace) -> None:
    assert get(team, "nobody", "--ignore-not-found") == ""


def test_a_bare_trainjobs_is_still_the_list_of_trainjobs(team: Workspace) -> None:
    answer = team.admin.kubectl("get", "trainjobs", "-n", team.name, "-o", "json")
    items = json.loads(answer.stdout)["items"]
    assert {item["apiVersion"] for item in items} == {"trainer.kubeflow.org/v1alpha1"}
    assert [item["metadata"]["name"] for item in items] == list(_LABELS)


def test_describe_prints_every_condition_of_every_match(team: Workspace) -> None:
    answer = team.alice.kubectl("describe", "tjp", "-n", team.name, "-l", "tier=gold")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = [line.split() for line in answer.stdout.splitlines()]
    assert [line[1] for line in lines if line[:1] == ["Name:"]] == ["bert", "llama"]
    for type_ in ("Reporting", "Fresh", "Stalled", "Diverged"):
        assert lines.count(["Type:", type_]) == 2
    assert lines.count(["Type:", "Complete"]) == 1  # llama has ended
    assert ["Labels:", "model=bert"] in lines


def test_describe_takes_the_beginning_of_a_name(team: Workspace) -> None:
    answer = team.alice.kubectl("describe", "tjp", "-n", team.name, "whis")
    assert "Name:         whisper" in answer.stdout, answer


def test_explain_knows_every_field_of_a_condition(team: Workspace) -> None:
    answer = team.bob.kubectl("explain", "tjp.status.conditions", "--recursive")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert re.search(r"FIELD: conditions <\[\](Object|Condition)>", answer.stdout), answer.stdout
    fields = re.findall(r"^  (\w+)\t<(\w+)>", answer.stdout, re.MULTILINE)
    assert {name for name, _ in fields} >= {"type", "status", "reason", "message", "lastTransitionTime"}


@pytest.mark.parametrize("output", ["plaintext", "plaintext-openapiv2"])
def test_explain_works_by_either_openapi(team: Workspace, output: str) -> None:
    if output == "plaintext-openapiv2" and team.cluster.kind == "local":
        pytest.skip("the local cluster publishes OpenAPI v3 only")
    answer = team.bob.kubectl("explain", "tjp", "--recursive", "--output", output)
    assert (answer.returncode, answer.stderr) == (0, "")
    for field in ("phase", "progressPercentage", "estimatedRemainingSeconds", "lastTermination", "metrics"):
        assert re.search(rf"^ +{field}\s+<", answer.stdout, re.MULTILINE), field


def test_api_resources_lists_ours_beside_the_trainers(team: Workspace) -> None:
    answer = team.bob.kubectl("api-resources", "--no-headers", "--namespaced=true", "--verbs=list,watch")
    assert answer.stderr == ""
    found = [line.split() for line in answer.stdout.splitlines() if line.startswith("trainjobs ")]
    assert ["trainjobs", "tjp", f"{GROUP}/v1alpha1", "true", "TrainJobProgress"] in found
    assert any(row[-3:] == ["trainer.kubeflow.org/v1alpha1", "true", "TrainJob"] for row in found)


def test_api_versions_and_get_all_are_as_ever(team: Workspace) -> None:
    assert f"{GROUP}/v1alpha1" in team.bob.kubectl("api-versions").stdout.splitlines()
    answer = team.admin.kubectl("get", "all", "-n", team.name, "-o", "name")
    assert "trainjobprogress" not in answer.stdout  # D7: nothing of ours in category `all`


@pytest.mark.parametrize("words", [("delete", "tjp", "bert"), ("label", "tjp", "bert", "a=b")])
def test_what_cannot_be_written_is_refused_before_anything_happens(
    team: Workspace, words: tuple[str, ...]
) -> None:
    answer = team.admin.kubectl(*words, "-n", team.name)
    assert answer.returncode == 1
    assert "MethodNotAllowed" in answer.stderr, answer.stderr
    assert names(get(team, "--no-headers")) == list(_LABELS)
