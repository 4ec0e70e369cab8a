"""A namespace whose TrainJobs have no pods: their documents are served all the same, and cost nothing.

A job that is managed elsewhere is touched by no controller, so that each write here is one change there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.e2e.api import Object
from tests.e2e.conformance.fronts import Front
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import PREFIX
from tests.e2e.workspace import TRAINER, Workspace

NOBODY = "example.com/nobody"
_POLL_S = 0.01


class Team:
    """Writes TrainJobs as the administrator. Each write returns when the server shows what came of it."""

    def __init__(self, workspace: Workspace, front: Front) -> None:
        self.workspace = workspace
        self.namespace = workspace.name
        self.path = f"{PREFIX}/namespaces/{workspace.name}/trainjobs"
        self._jobs = f"{TRAINER}/namespaces/{workspace.name}/trainjobs"
        self._api = workspace.cluster.admin
        self._reader = front.admin

    def create(self, name: str, *, suspended: bool = False, **labels: str) -> None:
        self._post(name, suspended=suspended, labels=labels)
        self._wait(name, lambda _: True)

    def fill(self, *names: str) -> None:
        """Many at once."""
        for name in names:
            self._post(name)

        def is_listed() -> bool:
            return {item["metadata"]["name"] for item in self.list()["items"]} >= set(names)

        wait_until(is_listed, what=f"{len(names)} documents are listed", poll_s=_POLL_S)

    def label(self, name: str, **labels: str | None) -> None:
        """None removes the label."""
        self._api.patch(f"{self._jobs}/{name}", {"metadata": {"labels": labels}})

        def has_them(document: Object) -> bool:
            held = document["metadata"].get("labels", {})
            return all(held.get(key) == value for key, value in labels.items())

        self._wait(name, has_them)

    def suspend(self, name: str, is_suspended: bool = True) -> None:
        """The phase becomes Suspended, or Unknown again."""
        self._api.patch(f"{self._jobs}/{name}", {"spec": {"suspend": is_suspended}})
        self._wait_phase(name, "Suspended" if is_suspended else "Unknown")

    def complete(self, name: str) -> None:
        """As the job's controller would: the phase becomes Succeeded."""
        condition = {
            "type": "Complete",
            "status": "True",
            "reason": "JobsCompleted",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        self._api.patch(f"{self._jobs}/{name}/status", {"status": {"conditions": [condition]}})
        self._wait_phase(name, "Succeeded")

    def delete(self, name: str) -> None:
        self._api.delete(f"{self._jobs}/{name}")
        wait_until(
            lambda: self._reader.send(f"{self.path}/{name}").status_code == 404,
            what=f"{name} has gone",
            poll_s=_POLL_S,
        )

    def list(self) -> Object:
        """As the server itself shows it now."""
        return self._reader.get(self.path)

    def document(self, name: str) -> Object:
        """As the server itself shows it now."""
        return self._reader.get(f"{self.path}/{name}")

    def _post(self, name: str, *, suspended: bool = False, labels: Mapping[str, str] | None = None) -> None:
        spec: dict[str, Any] = {"managedBy": NOBODY, "runtimeRef": {"name": "torch-distributed"}}
        if suspended:
            spec["suspend"] = True
        self._api.create(
            self._jobs,
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": name, "labels": dict(labels or {})},
                "spec": spec,
            },
        )

    def _wait_phase(self, name: str, phase: str) -> None:
        self._wait(name, lambda document: bool(document["status"]["phase"] == phase))

    def _wait(self, name: str, predicate: Callable[[Object], bool]) -> None:
        wait_until(lambda: predicate(self.document(name)), what=f"{name} is shown as written", poll_s=_POLL_S)


def names(listed: Object) -> list[str]:
    """Of a list's items, in their order."""
    return [item["metadata"]["name"] for item in listed["items"]]


def revision(thing: Object) -> int:
    """The resourceVersion of an object or a list."""
    return int(thing["metadata"]["resourceVersion"])
