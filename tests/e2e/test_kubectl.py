"""What kubectl's users see: an administrator, alice who may view one namespace, bob who may do nothing."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.e2e.api import Object
from tests.e2e.processes import wait_until
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.scripts import REPORTING
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import Workspace, condition

LABELS = {
    "bert": {"model": "bert", "tier": "gold"},
    "llama": {"model": "llama", "tier": "gold"},
    "whisper": {"model": "whisper"},
}
PHASES = [["bert", "Running"], ["llama", "Succeeded"], ["whisper", "Suspended"]]


@pytest.fixture(scope="module")
def team(shared: Workspace, jobs: QuietJobs) -> Workspace:
    """bert runs and reports, llama has completed and whisper is suspended."""
    shared.start_job("bert", REPORTING, labels=LABELS["bert"])
    jobs.create("llama", LABELS["llama"])
    jobs.end("llama")
    jobs.create("whisper", LABELS["whisper"], is_suspended=True)
    jobs.wait_served(*LABELS)
    jobs.wait_phase("llama", "Succeeded")
    shared.wait_reporting("bert")
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


# --- what is printed


def test_get_raw_prints_the_progress_document(team: Workspace) -> None:
    def shown() -> Object:
        answer = team.alice.kubectl("get", "--raw", f"{team.collection}/bert/progress")
        assert answer.returncode == 0, answer.stderr
        found: Object = json.loads(answer.stdout)
        assert condition(found["status"], "Fresh")["status"] == "True", found
        return found

    document = wait_until(shown, what="a fresh document is printed")
    assert (document["apiVersion"], document["kind"]) == (f"{GROUP}/v1alpha1", "TrainJobProgress")
    assert (document["metadata"]["namespace"], document["metadata"]["name"]) == (team.name, "bert")
    assert document["metadata"]["labels"] == LABELS["bert"]
    status = document["status"]
    assert status["phase"] == "Running"
    assert 0 < status["steps"]["current"] < status["steps"]["total"] == 100_000
    assert {"name": "loss", "value": "0.5"} in status["metrics"]
    assert status["rank0"]["podName"].startswith("bert-node-0-0-")


def test_get_raw_prints_the_history(team: Workspace) -> None:
    path = f"{team.collection}/bert/history?metric=loss&maxPoints=50"

    def shown() -> Object:
        answer = team.alice.kubectl("get", "--raw", path)
        assert answer.returncode == 0, answer.stderr
        found: Object = json.loads(answer.stdout)
        assert len(found["progress"][0]["times"]) >= 3, found
        return found

    found = wait_until(shown, what="three points are printed")
    assert (found["apiVersion"], found["kind"]) == (f"{GROUP}/v1alpha1", "TrainJobProgressHistory")
    (series,) = found["series"]
    assert (series["metric"], set(series["values"])) == ("loss", {"0.5"})
    refused = team.alice.kubectl("get", "--raw", f"{team.collection}/bert/history?maxPoints=many")
    assert "maxPoints must be a whole number" in refused.stderr
    assert team.bob.kubectl("get", "--raw", path).returncode != 0


def test_get_prints_one_line_a_job_under_our_columns(team: Workspace) -> None:
    header, *lines = rows(get(team))
    assert header == ["NAME", "PHASE", "PROGRESS", "STEP", "LOSS", "ETA", "SEEN", "AGE"]
    assert [line[:2] for line in lines] == PHASES
    assert lines[0][3].endswith("/100000")
    assert lines[0][4] == "0.5"
    assert all(re.fullmatch(r"\d+s|\d+m(\d+s)?", line[-1]) for line in lines), lines
    everywhere = rows(team.admin.kubectl("get", "tjp", "-A").stdout)
    assert everywhere[0][:3] == ["NAMESPACE", "NAME", "PHASE"]
    assert [line[1:3] for line in everywhere if line[0] == team.name] == PHASES


def test_wide_output_adds_what_explains(team: Workspace) -> None:
    header, bert, *lines = rows(get(team, "-o", "wide"))
    assert header[8:13] == ["EPOCH", "RATE", "SOURCE", "POD", "ACCELERATORS"]
    assert header[13:] == ["GOODPUT", "WASTED", "CHECKPOINT", "ATTEMPTS", "REASON", "MESSAGE"]
    assert "exec" in bert
    assert [line[-1] for line in lines] == ["EndedWithoutReport", "Suspended"]


@pytest.mark.parametrize("name", ["tjp", "trainjobprogress", f"trainjobs.{GROUP}", "trainjobs.visibility"])
def test_every_name_of_the_resource_leads_to_the_yaml(team: Workspace, name: str) -> None:
    answer = team.alice.kubectl("get", name, "llama", "-n", team.name, "-o", "yaml")
    assert answer.returncode == 0, answer.stderr
    document = yaml.safe_load(answer.stdout)
    assert (document["kind"], document["status"]["phase"]) == ("TrainJobProgress", "Succeeded")
    assert document == json.loads(get(team, "llama", "-o", "json"))
    assert document == json.loads(get(team, "llama", "--subresource=progress", "-o", "json"))


def test_a_bare_trainjobs_still_means_the_trainjobs_themselves(team: Workspace) -> None:
    answer = team.admin.kubectl("get", "trainjobs", "bert", "-n", team.name, "-o", "jsonpath={.apiVersion}")
    assert answer.stdout == "trainer.kubeflow.org/v1alpha1"
    listed = team.admin.kubectl("get", "all", "-n", team.name, "-o", "name")
    assert "trainjobprogress" not in listed.stdout  # D7: nothing of ours in category `all`


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--sort-by", ".metadata.labels.tier"), ["whisper", "bert", "llama"]),
        (("-l", "model in (bert,whisper),tier notin (silver)"), ["bert", "whisper"]),
        (("--field-selector", "status.phase!=Running,metadata.name!=llama"), ["whisper"]),
        (("--chunk-size=1",), ["bert", "llama", "whisper"]),
        (("nobody", "--ignore-not-found"), []),
    ],
)
def test_jobs_are_sorted_selected_and_listed_in_chunks(
    team: Workspace, arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert names(get(team, "--no-headers", *arguments)) == expected


def test_describe_prints_every_condition_of_every_match(team: Workspace) -> None:
    answer = team.alice.kubectl("describe", "tjp", "-n", team.name, "-l", "tier=gold")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = [line.split() for line in answer.stdout.splitlines()]
    assert re.findall(r"^Name: +(\S+)", answer.stdout, re.MULTILINE) == ["bert", "llama"]
    for type_ in ("Reporting", "Fresh", "Stalled", "Diverged"):
        assert lines.count(["Type:", type_]) == 2
    assert lines.count(["Type:", "Complete"]) == 1  # llama has ended
    assert ["Labels:", "model=bert"] in lines


# --- what is discovered


@pytest.mark.parametrize("output", ["plaintext", "plaintext-openapiv2"])
def test_explain_describes_every_field_to_anybody_by_either_openapi(team: Workspace, output: str) -> None:
    if output == "plaintext-openapiv2" and team.cluster.kind == "local":
        pytest.skip("the local cluster publishes OpenAPI v3 only")
    answer = team.bob.kubectl("explain", "tjp", "--recursive", "--output", output)
    assert (answer.returncode, answer.stderr) == (0, "")
    for field in ("phase", "progressPercentage", "estimatedRemainingSeconds", "lastTermination", "metrics"):
        assert re.search(rf"^ +{field}\s+<", answer.stdout, re.MULTILINE), field


def test_api_resources_lists_ours_beside_the_trainers(team: Workspace) -> None:
    answer = team.bob.kubectl("api-resources", "--no-headers", "-o", "wide")
    assert answer.stderr == ""
    found = [line.split() for line in answer.stdout.splitlines() if line.startswith("trainjobs ")]
    ours = ["trainjobs", "tjp", f"{GROUP}/v1alpha1", "true", "TrainJobProgress", "get,list,watch"]
    assert ours in [row[:6] for row in found]
    assert any("trainer.kubeflow.org/v1alpha1" in row for row in found)
    assert f"{GROUP}/v1alpha1" in team.bob.kubectl("api-versions").stdout.splitlines()


def test_auth_can_i_knows_the_subresource(team: Workspace) -> None:
    question = ("can-i", "get", f"trainjobs.{GROUP}/bert", "--subresource=progress", "-n", team.name)
    verdicts = [user.kubectl("auth", *question) for user in (team.admin, team.alice, team.bob)]
    assert [(each.returncode, each.stdout) for each in verdicts] == [(0, "yes\n"), (0, "yes\n"), (1, "no\n")]
    assert not any(each.stderr for each in verdicts), [each.stderr for each in verdicts]


# --- what is refused


@pytest.mark.parametrize("words", [("delete", "tjp", "bert"), ("label", "tjp", "bert", "a=b")])
def test_what_cannot_be_written_is_refused_before_anything_happens(
    team: Workspace, words: tuple[str, ...]
) -> None:
    answer = team.admin.kubectl(*words, "-n", team.name)
    assert answer.returncode == 1
    assert "MethodNotAllowed" in answer.stderr, answer.stderr
    assert names(get(team, "--no-headers")) == list(LABELS)


def test_the_server_asks_about_rights_again_itself(team: Workspace, server: VisibilityServer) -> None:
    # Z1: whoever reaches the pod past the API server gets just what RBAC gives, in the same words.
    alice = team.alice.pair
    assert server.get(f"{team.collection}/bert/progress", cert=alice).status_code == 200
    assert server.get(f"{PREFIX}/trainjobs", cert=alice).status_code == 403
    through = team.bob.api.raw("GET", team.collection)
    directly = server.get(team.collection, cert=team.bob.pair)
    assert (through.status_code, directly.json()) == (403, through.json())
