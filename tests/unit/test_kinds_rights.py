"""Users with rights for some kinds and namespaces: no answer has a row of another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace
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
from visibility_api.kinds import RESOURCES
from visibility_api.kubeapi.collection import Collection
from visibility_api.kubeapi.message import Handler
from visibility_api.kubeapi.watch import Watches
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
    for resource, namespace in itertools.product(RESOURCES, NAMESPACES):
        made = document("bert", namespace=namespace, uid=f"{resource.plural} in {namespace}")
        ref = replace(made.job.ref, resource=resource.plural)
        store.put(replace(made, job=replace(made.job, ref=ref)))
    handlers: dict[RouteKey, Handler] = {}
    for resource in RESOURCES:
        documents = Collection(resource, store, now=lambda: NOW)
        changes = Watches(resource, store, now=lambda: NOW)
        for subresource, verb, handler in (
            ("", "get", documents.get),
            ("", "list", documents.list),
            ("", "watch", changes.watch),
            ("progress", "get", documents.get),
        ):
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
            shown = {
                row
                for row in itertools.product(KINDS, NAMESPACES)
                if f'"{row[0]} in {row[1]}"' in answer.body.decode()
            }
            assert all({(kind, place), (kind, "")} & rights for kind, place in shown), answer.body
            seen |= shown
    assert {kind for kind, _ in seen} == {kind for kind, _ in rights}
