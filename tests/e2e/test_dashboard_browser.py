"""The page in a real browser, through the aggregator and `kubectl proxy`, of jobs that really run."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import Browser, browsing, missing
from tests.e2e.ingress import NGINX, ingress
from tests.e2e.life import Life
from tests.e2e.processes import wait_until
from tests.e2e.scripts import KILLED, SILENT
from tests.e2e.test_training_jobs import JOB
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

TRAINING = """
import math, time
from trainjob_progress import report

with report(total_steps=4_000) as r:
    for step in range(4_000):
        r.step(loss=0.4 + 2 * math.exp(-step / 800), accuracy=1 - math.exp(-step / 900))
        time.sleep(0.1)
"""
# A metric's name and a message that would be markup, and turn what comes after them around.
HOSTILE_NAME = "<img src=x onerror=document.title='owned'>"
HOSTILE = f"""
import datetime, json, os, time

path = os.environ["TRAINJOB_PROGRESS_FILE"]
with open(path + ".new", "w") as file:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    metrics = {{"loss": 1, {HOSTILE_NAME!r}: 2, "x\\u202ey": 3}}
    json.dump({{"step": 1, "timestamp": now, "metrics": metrics, "message": "</p><script>\\u202e"}}, file)
os.rename(path + ".new", path)
time.sleep(3600)
"""
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def jobs(shared: Workspace) -> Workspace:
    for name, script in {"bert": TRAINING, "killed": KILLED, "silent": SILENT, "hostile": HOSTILE}.items():
        shared.start_job(name, script)
    return shared


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found
        assert found.faults() == []


@pytest.fixture(scope="module")
def alice(shared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared.alice.proxied(tmp_path_factory.mktemp("proxy")) as address:
        yield address


@pytest.fixture(scope="module")
def alice_below(shared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same below another path, as `kubectl proxy --api-prefix` has it."""
    with shared.alice.proxied(tmp_path_factory.mktemp("proxy"), "/some/where") as address:
        yield address


def page_of(proxy: str, namespace: str, job: str = "") -> str:
    route = f"#/trainjobs/{namespace}/{job}" if job else ""
    return f"{proxy}{PREFIX}/namespaces/{namespace}/dashboard{route}"


def row(namespace: str, name: str, cell: str = "", resource: str = "trainjobs") -> str:
    return f'[data-key="{resource}/{namespace}/{name}"] {cell}'.strip()


def text_changes(browser: Browser, on: str) -> str:
    """Waits until what stands there is another text."""
    before = browser.text(on)

    def other() -> str | None:
        now = browser.text(on)
        return now if now != before else None

    found = wait_until(other, what=f"{on} shows something else than {before!r}")
    assert found is not None
    return found


def test_the_jobs_of_a_namespace_are_shown_live(jobs: Workspace, browser: Browser, alice: str) -> None:
    jobs.wait_reporting("bert")
    browser.open(page_of(alice, jobs.name))
    browser.wait("text=/^4 jobs$/")
    browser.wait(f"{row(jobs.name, 'bert')} >> text=loss")
    text_changes(browser, row(jobs.name, "bert", ".progress small"))
    browser.wait(row(jobs.name, "bert", ".spark path"), state="attached")
    browser.wait(f"{row(jobs.name, 'killed')} >> text=Failed")


def test_ten_tabs_of_jobs_and_two_lists_are_live_through_one_kubectl_proxy(
    shared: Workspace, jobs: Workspace, browser: Browser, alice: str
) -> None:
    """A browser opens six connections to the proxy."""
    names = ["bert", "killed", "silent", *(f"small-{number}" for number in range(7))]
    for name in names[3:]:
        shared.start_job(name, TRAINING)
    try:
        for name in names[3:]:
            jobs.wait_reporting(name)
        browser.open(page_of(alice, jobs.name))
        browser.wait(f"{row(jobs.name, 'bert')} >> text=loss")
        browser.tab(page_of(alice, jobs.name))
        browser.wait(f"{row(jobs.name, 'bert')} >> text=loss")
        for name in names:
            browser.tab(page_of(alice, jobs.name, name))
            browser.wait(f"h1:has-text('{name}')")
            browser.wait(".numbers", state="attached")
        for tab in range(5, 12):  # those of the jobs that train
            browser.front(tab)
            text_changes(browser, ".numbers")
        for tab in (0, 1):
            browser.front(tab)
            text_changes(browser, row(jobs.name, names[-1], ".progress small"))
    finally:
        for name in names[3:]:
            shared.delete_job(name)


def test_a_job_of_another_kind_is_told_apart_in_the_list_and_has_a_page_with_each_of_its_pods(
    workspace: Workspace, browser: Browser, alice: str
) -> None:
    sample = JOB
    workspace.start_job(sample.name, TRAINING)  # of the same name
    life = Life(workspace, sample, TRAINING)
    life.create()
    try:
        life.wait_reporting()
        workspace.wait_reporting(sample.name)
        browser.open(page_of(alice, workspace.name))
        browser.wait("text=/^2 jobs$/")
        browser.wait("role=columnheader[name='Kind']")
        browser.wait(row(workspace.name, sample.name, ".of-kind >> text=/^TrainJob$/"))
        browser.wait(row(workspace.name, sample.name, ".of-kind >> text=/^Job$/", "jobs"))
        browser.click("role=button[name=/^Kind$/]")
        browser.click("role=checkbox[name=/^Job/]")
        browser.wait("text=/^1 of 2 jobs$/")
        assert browser.count(".body .row") == 1
        browser.click(row(workspace.name, sample.name, ".name a", "jobs"))
        browser.wait(f"h1:has-text('{sample.name}')")
        browser.wait(".plot canvas")
        text_changes(browser, ".numbers")
        browser.scroll("h2:has-text('Replicas')")
        browser.wait("role=option[name='worker-0: Running']")
        browser.wait(".pod-table tr:has-text('worker-0') >> text=/^[0-9]+s$/")  # its last report
        browser.click("text=YAML and kubectl")
        browser.wait(f"text=kubectl get jobs.{GROUP} {sample.name} -n {workspace.name}")
        assert browser.faults() == []
    finally:
        life.end()


def test_filters_are_in_the_address(jobs: Workspace, browser: Browser, alice: str) -> None:
    jobs.wait_document("killed", lambda status: status["phase"] == "Failed", what="has failed")
    browser.open(page_of(alice, jobs.name))
    browser.click("button.chip:has-text('Failed')")
    browser.wait("text=/^1 of 4 jobs$/")
    assert browser.count(".body .row") == 1


def test_a_job_is_shown_with_its_curve_its_events_and_its_document(
    jobs: Workspace, browser: Browser, alice: str
) -> None:
    jobs.wait_reporting("bert", beyond_step=20)
    browser.open(page_of(alice, jobs.name, "bert"))
    browser.wait("h1:has-text('bert')")
    browser.wait(".plot canvas")
    browser.wait(
        "role=img[name=/^loss\\. By step\\. loss: [0-9]+ points, from 2/]"
    )  # what was before we looked
    text_changes(browser, ".numbers")
    browser.click("text=YAML and kubectl")
    browser.wait(f"text=kubectl get tjp bert -n {jobs.name} -o yaml")
    browser.wait("text=apiVersion: visibility.trainer.kubeflow.org/v1alpha1")


def test_a_job_that_was_killed_says_how_it_ended(jobs: Workspace, browser: Browser, alice: str) -> None:
    jobs.wait_document("killed", lambda status: status["phase"] == "Failed", what="has failed")
    browser.open(page_of(alice, jobs.name, "killed"))
    browser.wait("text=Why it failed")


def test_events_of_the_job_are_shown_to_whoever_may_list_them(
    jobs: Workspace, browser: Browser, alice: str
) -> None:
    regarding = jobs.document("bert")["metadata"]
    if jobs.cluster.kind == "local":
        pytest.skip("the stand-in has no events.k8s.io")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    event = {
        "metadata": {"name": f"bert.{secrets.token_hex(4)}", "namespace": jobs.name},
        "regarding": {"kind": "TrainJob", "name": "bert", "namespace": jobs.name, "uid": regarding["uid"]},
        "reason": "TrainingStalled",
        "note": "No advance for 5m <script>",
        "type": "Warning",
        "action": "Evaluate",
        "eventTime": now,
        "reportingController": "visibility.trainer.kubeflow.org/server",
        "reportingInstance": "e2e",
    }
    events = f"/apis/events.k8s.io/v1/namespaces/{jobs.name}/events"
    jobs.cluster.admin.create(events, event)
    browser.open(page_of(alice, jobs.name, "bert"))
    browser.wait("text=No advance for 5m <script>")


def test_the_documentation_of_a_reason_is_there_without_another_host(
    jobs: Workspace, browser: Browser, alice: str
) -> None:
    jobs.wait_condition("silent", "Reporting", "False", reason="NoProgressFile")
    browser.open(page_of(alice, jobs.name, "silent"))
    browser.click("text=More about NoProgressFile")
    browser.wait("tr.sought:has-text('NoProgressFile')")


def test_the_page_works_below_any_path(jobs: Workspace, browser: Browser, alice_below: str) -> None:
    jobs.wait_reporting("bert")
    browser.open(page_of(alice_below, jobs.name))
    browser.wait("text=/^4 jobs$/")
    text_changes(browser, row(jobs.name, "bert", ".progress small"))
    browser.click(row(jobs.name, "bert", ".name a"))
    browser.wait(".plot canvas")


@pytest.mark.skipif(NGINX is None, reason="there is no nginx here")
def test_behind_an_ingress_the_page_is_live_and_each_sees_what_they_may(
    jobs: Workspace, server: VisibilityServer, browser: Browser, tmp_path: Path
) -> None:
    jobs.wait_reporting("bert")
    with ingress(server, tmp_path, certificate=server.issue_ingress()) as address:
        login = [{"name": "login", "value": jobs.alice.name, "url": address}]
        browser.open(page_of(address, jobs.name), cookies=login)
        browser.wait("text=/^4 jobs$/")
        text_changes(browser, row(jobs.name, "bert", ".progress small"))
        browser.click(row(jobs.name, "bert", ".name a"))
        browser.wait(".plot canvas")
        browser.wait("text=Events are not available at this address.")  # they are kube-apiserver's
        login[0]["value"] = jobs.bob.name
        browser.open(page_of(address, jobs.name), cookies=login)
        browser.wait("text=/cannot list resource/")


def test_a_job_that_does_not_report_says_how_to(jobs: Workspace, browser: Browser, alice: str) -> None:
    jobs.wait_condition("silent", "Reporting", "False", reason="NoProgressFile")
    browser.open(page_of(alice, jobs.name, "silent"))
    browser.wait("text=from trainjob_progress import report")


def test_what_a_hostile_job_says_is_text(jobs: Workspace, browser: Browser, alice: str) -> None:
    jobs.wait_reporting("hostile")
    browser.open(page_of(alice, jobs.name, "hostile"))
    browser.wait("text=</p><script>[U+202E]")
    assert browser.count("img") == 0
    assert "owned" not in browser.title()


def test_the_page_goes_on_after_a_restart_of_the_server(
    jobs: Workspace, server: VisibilityServer, browser: Browser, alice: str
) -> None:
    jobs.wait_reporting("bert")
    browser.open(page_of(alice, jobs.name))
    browser.wait("text=/^4 jobs$/")
    browser.tab(page_of(alice, jobs.name, "bert"))
    browser.wait(".plot canvas")
    server.restart()
    server.wait_available()
    browser.wait("text=Connection lost.", state="hidden")
    text_changes(browser, ".numbers")
    browser.front(0)
    browser.wait("text=Connection lost.", state="hidden")
    text_changes(browser, row(jobs.name, "bert", ".progress small"))
    assert browser.faults() == []


def test_who_may_open_the_page_and_not_list_is_told_what_is_missing(
    jobs: Workspace, browser: Browser, alice: str
) -> None:
    admin, name = jobs.cluster.admin, f"page-only-{jobs.name}"
    rules = [{"apiGroups": [GROUP], "resources": ["dashboard"], "verbs": ["get", "list"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": jobs.alice.name}
    admin.create(f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    admin.create(
        f"{_RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    )
    try:
        wait_until(
            lambda: jobs.alice.api.raw("GET", f"{PREFIX}/dashboard").status_code == 200,
            what="alice may open it",
        )
        browser.open(f"{alice}{PREFIX}/dashboard")
        browser.wait("text=You may not list the jobs of all namespaces")
        browser.wait('text=/cannot list resource "trainjobs"/')
    finally:
        admin.delete(f"{_RBAC}/clusterrolebindings/{name}")
        admin.delete(f"{_RBAC}/clusterroles/{name}")
