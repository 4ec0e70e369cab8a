"""One job of any kind, from its creation to its deletion, with what its operator would make and write."""

from __future__ import annotations

import json

from tests.e2e.api import Object
from tests.e2e.processes import wait_until
from tests.e2e.scripts import REPORTING
from tests.e2e.visibility_server import GROUP, PREFIX
from tests.e2e.workspace import Workspace
from tests.kinds import GENERATED, Part, Sample

_NODE = "/api/v1/nodes"
STRICT = {"fieldValidation": "Strict"}  # kube-apiserver refuses what the CRD does not have


class Life:
    """One job from its creation to its deletion."""

    def __init__(
        self, team: Workspace, sample: Sample, script: str = REPORTING, example: Object | None = None
    ) -> None:
        """`example`: a pod whose volumes and variables this one has too."""
        self.team, self.sample = team, sample
        self.volumes = {} if example is None else {"volumes": example["volumes"]}
        (given,) = ({},) if example is None else example["containers"]
        self.container = {"command": ["python", "-c", script]} | {
            key: given[key] for key in ("env", "volumeMounts") if key in given
        }
        self.admin = team.cluster.admin
        self.jobs = f"{sample.api}/namespaces/{team.name}/{sample.plural}"
        self.path = f"{PREFIX}/namespaces/{team.name}/{sample.resource}/{sample.name}"
        self.parts: list[str] = []
        self.generated = GENERATED

    def create(self, owner: Object | None = None, **spec: object) -> None:
        meta = {"name": self.sample.name, "labels": {"team": "nlp"} | dict(self.sample.labels)}
        if owner is not None:
            meta["ownerReferences"] = [_reference(owner)]
        self.job = self.admin.create(
            self.jobs,
            {
                "apiVersion": _version(self.sample.api),
                "kind": self.sample.kind,
                "metadata": meta,
                "spec": self._trained(self.sample.spec) | spec,
            },
            **STRICT,
        )

    def make_parts(self) -> None:
        """What the job's controllers make."""
        if self.sample.is_controlled:
            return
        self.owner = self.job
        for part in self.sample.parts:
            self.owner = self._make(part, self.owner)
        self.make_pod()

    def make_pod(self) -> None:
        (node,) = self.admin.items(_NODE)
        container = {"name": self.sample.container, "image": "python:3"} | self.container
        spec = {
            "nodeName": node["metadata"]["name"],
            "restartPolicy": "Never",
            "serviceAccountName": "trainer",
            "containers": [container],
        } | self.volumes
        sample = self.sample
        pod = Part(
            api="/api/v1", plural="pods", kind="Pod", name=sample.pod, labels=sample.pod_labels, spec=spec
        )
        self._make(pod, self.owner)

    def _make(self, part: Part, owner: Object) -> Object:
        version, path = _version(part.api), f"{part.api}/namespaces/{self.team.name}/{part.plural}"
        meta = {"name": part.name, "labels": dict(part.labels), "ownerReferences": [_reference(owner)]}
        body = {"apiVersion": version, "kind": part.kind, "metadata": meta, "spec": part.spec}
        made = self.admin.create(path, self._named(body), **STRICT) | {
            "apiVersion": version,
            "kind": part.kind,
        }
        self.parts.append(f"{path}/{made['metadata']['name']}")
        return made

    def _named(self, value: Object) -> Object:
        """With the text that the controller has generated for names, which is another one after a retry."""
        made: Object = json.loads(json.dumps(value).replace(GENERATED, self.generated))
        return made

    def _trained(self, spec: Object) -> Object:
        """With pods that train where controllers here make them; none of the cluster's nodes has a GPU."""
        made: Object = json.loads(json.dumps(spec))
        policy = "Always" if self.sample.kind == "StatefulSet" else "Never"

        def fill(place: object) -> None:
            if isinstance(place, dict):
                if "containers" in place:
                    place |= {"restartPolicy": policy, "serviceAccountName": "trainer"} | self.volumes
                    for container in place["containers"]:
                        container.pop("resources", None)
                        container |= self.container
                for each in place.values():
                    fill(each)
            elif isinstance(place, list):
                for each in place:
                    fill(each)

        fill(made)
        return made

    def restart(self) -> None:
        """The pod of rank 0 goes and its controller makes another one; a RayJob's with a new cluster."""
        pod = self.pod()["metadata"]["name"]
        if self.sample.is_controlled:
            self.admin.delete(f"/api/v1/namespaces/{self.team.name}/pods/{pod}")
            return
        if self.sample.restarting:
            self.set_status(self.sample.restarting)
        is_retried = self.sample.kind == "RayJob"
        self._delete_parts(self.parts if is_retried else self.parts[-1:])
        self.wait_phase("Pending")
        self.generated = "m9q4z"
        self.make_parts() if is_retried else self.make_pod()
        self.set_state("Running")

    def end(self) -> None:
        self._delete_parts(self.parts)
        self.delete()
        wait_until(self.is_gone, what=f"{self.sample.id} is gone")

    def _delete_parts(self, parts: list[str]) -> None:
        for part in list(reversed(parts)):
            self.admin.delete(part, gracePeriodSeconds=0, propagationPolicy="Background")
            self.parts.remove(part)

    def annotate(self, **annotations: str) -> None:
        ours = {f"{GROUP}/{key}": value for key, value in annotations.items()}
        self.admin.patch(f"{self.jobs}/{self.sample.name}", {"metadata": {"annotations": ours}})

    def set_state(self, phase: str) -> None:
        self.set_status(self.sample.states[phase])

    def set_status(self, status: Object) -> None:
        path = f"{self.jobs}/{self.sample.name}/status"
        self.admin.patch(path, {"status": self._named(status)}, **STRICT)

    def wait_phase(self, phase: str) -> Object:
        def shown() -> Object:
            found = self.admin.get(f"{self.path}/progress")
            assert found["status"]["phase"] == phase, found["status"]
            return found

        return wait_until(shown, what=f"{self.sample.id} is {phase}")

    def wait_reporting(self, source: str = "", attempts: int = 1) -> Object:
        """`source`: by which its latest report came; "": by any."""

        def shown() -> Object:
            found = self.admin.get(self.path)
            status = found["status"]
            assert status["steps"]["current"] > 0, status
            assert status["observation"]["source"] == source or not source, status
            assert status["attempts"] == attempts, status
            return found

        return wait_until(shown, what=f"{self.sample.id} reports")

    def pod(self) -> Object:
        name = self.admin.get(self.path)["status"]["rank0"]["podName"]
        return self.admin.get(f"/api/v1/namespaces/{self.team.name}/pods/{name}")

    def delete(self) -> None:
        self.admin.delete(f"{self.jobs}/{self.sample.name}", propagationPolicy="Background")

    def is_gone(self) -> bool:
        return self.admin.raw("GET", self.path).status_code == 404


def _version(api: str) -> str:
    return api.removeprefix("/apis/").removeprefix("/api/")


def _reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
