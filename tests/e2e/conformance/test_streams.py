"""Watches, and the pages of a list, as they come through kube-apiserver's proxy."""

from __future__ import annotations

from tests.e2e.api import Object
from tests.e2e.processes import wait_until
from tests.e2e.quiet_jobs import QuietJobs
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User, Workspace

INFORMER = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
END = {"k8s.io/initial-events-end": "true"}


def short(event: Object) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


def test_W3_W5_headers_come_before_any_event_and_each_event_as_it_happens(
    own_jobs: QuietJobs, workspace: Workspace
) -> None:
    listed = workspace.alice.api.get(own_jobs.collection)["metadata"]["resourceVersion"]
    with workspace.alice.api.watch(own_jobs.collection, resourceVersion=listed) as events:  # has its headers
        own_jobs.create("bert")
        assert short(next(events)) == ("ADDED", "bert")
        own_jobs.label("bert", tier="gold")
        assert short(next(events)) == ("MODIFIED", "bert")
        own_jobs.delete("bert")
        assert short(next(events)) == ("DELETED", "bert")


def test_W7_W8_W19_an_informer_is_synced_by_one_bookmark_and_lists_from_it(
    bert: QuietJobs, workspace: Workspace
) -> None:
    with workspace.alice.api.watch(bert.collection, **INFORMER) as events:
        assert short(next(events)) == ("ADDED", "bert")
        bookmark = next(events)
        assert (bookmark["type"], bookmark["object"]["metadata"]["annotations"]) == ("BOOKMARK", END)
        bert.create("gpt")
        assert short(next(events)) == ("ADDED", "gpt")
    revision = bookmark["object"]["metadata"]["resourceVersion"]
    assert workspace.alice.api.items(bert.collection, resourceVersion=revision)
    refused = workspace.alice.api.raw("GET", f"{bert.collection}?resourceVersion={int(revision) + 10**12}")
    assert [cause["reason"] for cause in refused.json()["details"]["causes"]] == ["ResourceVersionTooLarge"]


def test_W9_a_watch_ends_cleanly_after_timeout_seconds(shared: Workspace) -> None:
    with shared.alice.api.watch(shared.collection, timeoutSeconds="1") as events:
        assert list(events) == []  # a stream that is cut, not ended, raises here


def test_W22_watches_that_have_gone_are_forgotten(
    server: VisibilityServer, shared: Workspace, users: dict[str, User]
) -> None:
    pair = users["admin"].pair

    def running() -> float:
        metrics = server.get("/metrics", cert=pair).text.splitlines()
        (line,) = (line for line in metrics if line.startswith("apiserver_longrunning_requests"))
        return float(line.split()[-1])

    wait_until(lambda: running() == 0, what="the watches of earlier tests are forgotten")
    api = shared.alice.api
    with api.watch(shared.collection), api.watch(shared.collection):
        wait_until(lambda: running() == 2, what="both watches are known")
    wait_until(lambda: running() == 0, what="both watches are forgotten")


def test_L9_P10_W24_a_restart_ends_watches_cleanly_and_forgets_old_revisions(
    server: VisibilityServer, bert: QuietJobs, workspace: Workspace
) -> None:
    bert.create("gpt")
    bert.wait_served("gpt")
    api, path = workspace.alice.api, bert.collection
    before = api.get(path, limit="1")["metadata"]
    with api.watch(path, resourceVersion=before["resourceVersion"]) as events:
        server.restart()  # in order, though neither this stream nor the idle connections are read (P10)
        assert list(events) == []
    wait_until(lambda: api.raw("GET", path).status_code == 200, what="the aggregator is back")
    if server.stores:  # the log outlives the process: an old revision is not forgotten
        with api.watch(path, resourceVersion=before["resourceVersion"]) as events:
            bert.create("later")
            event = next(events)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "later")
        return
    with api.watch(path, resourceVersion=before["resourceVersion"]) as events:
        (event,) = events
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    for query in (
        f"resourceVersionMatch=Exact&resourceVersion={before['resourceVersion']}",
        f"continue={before['continue']}",
    ):
        refused = api.raw("GET", f"{path}?{query}")
        assert (refused.status_code, refused.json()["reason"]) == (410, "Expired")
    after = api.get(path, resourceVersion=before["resourceVersion"])
    assert [item["metadata"]["name"] for item in after["items"]] == ["bert", "gpt"]
    revisions = [int(item["metadata"]["resourceVersion"]) for item in after["items"]]
    assert min(revisions) > int(before["resourceVersion"])
