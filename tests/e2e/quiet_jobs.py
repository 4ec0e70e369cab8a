"""TrainJobs that never get a pod, so that a thousand of them cost nothing.

Their runtime is not installed, so no controller touches them: what changes about them a test has changed.
They are served as Pending until a condition in their status says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.e2e.api import Api, Object
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import PREFIX
from tests.e2e.workspace import TRAINER

_CHANGED_AT = "2026-01-02T03:04:05Z"


class QuietJobs:
    """The quiet jobs of one namespace, changed by an administrator."""

    def __init__(self, admin: Api, namespace: str) -> None:
        self._admin = admin
        self.namespace = namespace
        self.collection = f"{PREFIX}/namespaces/{namespace}/trainjobs"
        self._path = f"{TRAINER}/namespaces/{namespace}/trainjobs"

    def create(
        self, name: str, labels: Mapping[str, str] | None = None, *, is_suspended: bool = False
    ) -> None:
        self._admin.create(
            self._path,
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": name, "labels": dict(labels or {})},
                "spec": {"runtimeRef": {"name": "not-installed"}, "suspend": is_suspended},
            },
        )

    def delete(self, name: str) -> None:
        self._admin.delete(f"{self._path}/{name}")

    def label(self, name: str, **labels: str | None) -> None:
        """Sets labels; None takes one off."""
        self._admin.patch(f"{self._path}/{name}", {"metadata": {"labels": labels}})

    def suspend(self, name: str, *, is_suspended: bool = True) -> None:
        self._admin.patch(f"{self._path}/{name}", {"spec": {"suspend": is_suspended}})

    def end(self, name: str, *, condition: str = "Complete") -> None:
        """The job is over, as its controller would say it."""
        verdict = {
            "type": condition,
            "status": "True",
            "reason": "JobsCompleted" if condition == "Complete" else "JobsFailed",
            "message": "all is over",
            "lastTransitionTime": _CHANGED_AT,
        }
        self._admin.patch(f"{self._path}/{name}/status", {"status": {"conditions": [verdict]}})

    def served(self, user: Api | None = None) -> dict[str, Object]:
        """What the server shows an administrator, or that user, of this namespace now, by name."""
        return {item["metadata"]["name"]: item for item in (user or self._admin).items(self.collection)}

    def wait_served(self, *names: str) -> None:
        wait_until(lambda: self.served().keys() >= set(names), what=f"{', '.join(names[:3])} … are served")

    def wait_settled(self) -> None:
        """Until all that was created, labelled and deleted here is served so."""

        def identities(items: Iterable[Object]) -> set[str]:
            metas = [item["metadata"] for item in items]
            return {
                f"{each['name']} {each['uid']} {sorted(each.get('labels', {}).items())}" for each in metas
            }

        wait_until(
            lambda: identities(self.served().values()) == identities(self._admin.items(self._path)),
            what="all changes are served",
        )

    def wait_phase(self, name: str, phase: str) -> None:
        wait_until(
            lambda: self.served()[name]["status"]["phase"] == phase, what=f"{name} is served as {phase}"
        )
