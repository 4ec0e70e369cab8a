"""Training jobs with a volume: what is in it outlives a container, and tests leave signs there."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import yaml

from tests.e2e.api import Object
from tests.e2e.manifests import ROOT
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import TRAINER, Workspace

DIRECTORY = "/data"  # of the volume, and the working directory


class VolumeJobs:
    """Starts them in one namespace. They find what they need to push to `server`, and do as they like."""

    def __init__(self, team: Workspace, server: VisibilityServer) -> None:
        self.team = team
        self._admin = team.cluster.admin
        self._runtime = self._make_runtime(server)
        # What examples/push/runtime.yaml looks for.
        self._admin.create(
            f"/api/v1/namespaces/{team.name}/configmaps",
            {
                "metadata": {"name": "visibility-api-ca"},
                "data": {"ca.crt": server.authority.bundle.read_text()},
            },
        )

    def start(
        self,
        name: str,
        script: str,
        *,
        annotations: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Object:
        return self.team.start_job(name, script, runtime=self._runtime, annotations=annotations, env=env)

    def leave_sign(self, job: str, sign: str) -> None:
        """Put an empty file into the volume, once the job's container runs."""
        wait_until(
            lambda: self.run(job, "touch", f"{DIRECTORY}/{sign}") is not None,
            what=f"{sign} is in the volume of {job}",
        )

    def run(self, job: str, *argv: str) -> str | None:
        """What the command prints in the job's container; None when it fails or cannot be run."""
        (pod, *_) = self.team.pods(job)
        target = (pod["metadata"]["name"], "-n", self.team.name, "-c", "node")
        answer = self.team.admin.kubectl("exec", *target, "--", *argv)
        return answer.stdout if answer.returncode == 0 else None

    def _make_runtime(self, server: VisibilityServer) -> str:
        found = yaml.safe_load((ROOT / "examples/push/runtime.yaml").read_text())
        name: str = f"with-volume-{secrets.token_hex(3)}"
        found["metadata"]["name"] = name
        (job,) = found["spec"]["template"]["spec"]["replicatedJobs"]
        pod = job["template"]["spec"]["template"]["spec"]
        pod["serviceAccountName"] = "default"  # as admission says; tokens are bound to pods of that account
        pod["volumes"].append({"name": "data", "emptyDir": {}})
        (container,) = pod["containers"]
        container["workingDir"] = DIRECTORY
        container["volumeMounts"].append({"name": "data", "mountPath": DIRECTORY})
        for variable in container["env"]:
            if variable["name"] == "KUBEFLOW_TRAINER_SERVER_URL":
                variable["value"] = f"{server.url}/{variable['value'].split('/', 3)[3]}"
        self._admin.create(f"{TRAINER}/clustertrainingruntimes", found)
        return name
