"""Users with rights for some kinds and namespaces: no answer has a row of another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.asgi import Answer, call
from tests.jobs import NOW, document
from visibility_api.app import Limits, Parts, create_app
from visibility_api.app.dependencies import Found, HistorySource, LogTails
from visibility_api.app.limits import new_shares
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.app.resource_routes import RouteKey
from visibility_api.auth.errors import AccessDenied
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.kinds import ALL_RESOURCES, KINDS as JOB_KINDS, RESOURCES
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.message import Handler
from visibility_api.kubeapi.training_jobs import AllKinds
from visibility_api.kubeapi.watch import Watches
from visibility_api.models.served import TRAINING_JOBS
from visibility_api.store.memory import MemoryStore

BASE = "/apis/visibility.trainer.kubeflow.org/v1alpha1"
NAMESPACES = ("team-a", "team-b")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KINDS = tuple(each.plural for each in RESOURCES)
Right = tuple[str, str]  # resource and namespace; "" for all


class Caller:
    """Somebody with just these rights; reads all verbs and subresources of them."""

    def __init__(self, rights: set[Right]) -> None:
        self.rights = rights

    async def authenticate(self, _scope: object) -> Identity:
        return Identity(user="alice")

    async def authorize(self, identity: Identity, wanted: Attributes) -> None:
        place = {(wanted.resource, wanted.namespace), (wanted.resource, "")}
        if not place & self.rights:
            raise AccessDenied(identity, wanted)


def served(caller: Caller) -> Any:
    store = MemoryStore(base_revision=1)
    for kind, namespace in itertools.product(KINDS, NAMESPACES):
        store.put(document("bert", resource=kind, namespace=namespace, uid=f"{kind} in {namespace}"))
    handlers: dict[RouteKey, Handler] = {}
    of_all_kinds = AllKinds({kind.served: kind.name for kind in JOB_KINDS}, caller)
    for resource in ALL_RESOURCES:
        view = of_all_kinds if resource is TRAINING_JOBS else None
        documents = Collection(resource, store, now=lambda: NOW, view=view)
        changes = Watches(resource, store, now=lambda: NOW, view=view)
        for subresource, verb, handler in (
            ("", "get", documents.get),
            ("", "list", documents.list),
            ("", "watch", changes.watch),
            ("progress", "get", documents.get),
        ):
            if subresource and not resource.subresources:
                continue
            handlers[resource.plural, subresource, verb] = handler
    registry, limits = CollectorRegistry(), Limits()

    def find(resource: str, namespace: str, name: str) -> Found | None:
        entry = store.get(resource, namespace, name)
        return None if entry is None else (entry, None)

    return create_app(
        Parts(
            authenticator=caller,
            authorizer=caller,
            handlers=handlers,
            registry=registry,
            metrics=RequestMetrics(registry),
            limits=limits,
            shares=new_shares(limits),
            histories=HistorySource(find=find),
            log_tails=LogTails(find=store.get, authorizer=caller, logs=None),
        )
    )


def rows_of(answer: Answer) -> set[Right]:
    return {row for row in itertools.product(KINDS, NAMESPACES) if f'"{row[0]} in {row[1]}"' in answer.text}


USERS: dict[str, set[Right]] = {
    "one kind in one namespace": {("pytorchjobs", "team-a")},
    "two kinds, each in another namespace": {("jobs", "team-a"), ("jobsets", "team-b")},
    "one kind everywhere": {("rayjobs", "")},
    "nothing": set(),
}


@pytest.mark.parametrize("rights", USERS.values(), ids=USERS)
async def test_no_answer_has_what_its_reader_has_no_right_to(rights: set[Right]) -> None:
    app = served(Caller(rights))
    seen: set[Right] = set()
    for resource, namespace, rest in itertools.product(
        (each.plural for each in RESOURCES),
        ("", *NAMESPACES),
        ("", "/bert", "/bert/progress", "/bert/history", "/bert/log-tail"),
    ):
        if rest and not namespace:
            continue
        scope = f"/namespaces/{namespace}" if namespace else ""
        for accept in ("application/json", f"{TABLE},application/json"):
            answer: Answer = await call(app, f"{BASE}{scope}/{resource}{rest}", headers=[("Accept", accept)])
            is_allowed = bool({(resource, namespace), (resource, "")} & rights)
            is_off = rest == "/bert/log-tail"  # its source is switched off: 403 for all
            assert (answer.status == 200) == (is_allowed and not is_off), (resource, namespace, rest)
            shown = rows_of(answer)
            assert all({(kind, place), (kind, "")} & rights for kind, place in shown), answer.body
            seen |= shown
    assert {kind for kind, _ in seen} == {kind for kind, _ in rights}


@pytest.mark.parametrize("rights", USERS.values(), ids=USERS)
@pytest.mark.parametrize("accept", ["application/json", f"{TABLE},application/json"])
async def test_the_list_of_all_kinds_has_the_rows_of_the_lists_of_each(
    rights: set[Right], accept: str
) -> None:
    app = served(Caller(rights | {("trainingjobs", "")}))
    for namespace in ("", *NAMESPACES):
        scope = f"/namespaces/{namespace}" if namespace else ""
        answer = await call(app, f"{BASE}{scope}/trainingjobs", headers=[("Accept", accept)])
        expected = {
            (kind, place)
            for kind, place in itertools.product(KINDS, NAMESPACES)
            if {(kind, namespace), (kind, "")} & rights and namespace in ("", place)
        }
        assert (answer.status == 200) == bool(expected), answer.body
        assert rows_of(answer) == expected
        if answer.status == 200 and "Table" not in accept:
            assert {each["metadata"]["name"] for each in answer.json()["items"]} == {
                f"{kind}.bert" for kind, _ in expected
            }
    for kind, namespace in itertools.product(KINDS, NAMESPACES):
        one = await call(app, f"{BASE}/namespaces/{namespace}/trainingjobs/{kind}.bert")
        assert one.status == (200 if {(kind, namespace), (kind, "")} & rights else 403)
