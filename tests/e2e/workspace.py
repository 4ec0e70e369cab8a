"""One namespace with training jobs in it, and the users who look at them."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.e2e.api import Api, Object, write_kubeconfig
from tests.e2e.cluster import Cluster
from tests.e2e.pki import KeyPair
from tests.e2e.processes import PATIENCE_S, Daemon, wait_until
from tests.e2e.rbac import bind_in_namespace
from tests.e2e.visibility_server import GROUP, PREFIX

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
_numbers = itertools.count(1)
_KUBECTL = Path(os.environ.get("KUBECTL") or Path(sys.executable).with_name("kubectl"))


class User:
    """Somebody with a client certificate; `api` is the same person without kubectl."""

    def __init__(self, name: str, cluster: Cluster, pair: KeyPair, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.pair = pair
        self._home = directory
        cert = pair
        self.kubeconfig = write_kubeconfig(
            directory / "kubeconfig", url=cluster.url, ca_file=cluster.ca_file, cert=cert
        )
        self.api = Api(cluster.url, ca_file=cluster.ca_file, cert=cert)

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Real kubectl, with a discovery cache of its own. Never raises for an exit code."""
        return subprocess.run(
            self.kubectl_argv(*arguments),
            env=self.kubectl_env(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    @contextlib.contextmanager
    def proxied(self, directory: Path, prefix: str = "") -> Iterator[str]:
        """The address of this user's `kubectl proxy`, which serves the API below `prefix`."""
        log = directory / f"proxy-{self.name}.log"
        argv = self.kubectl_argv("proxy", "--port=0", "--address=127.0.0.1", f"--api-prefix={prefix}/")
        proxy = Daemon("kubectl proxy", argv, log=log, env=self.kubectl_env())
        proxy.start()

        def address() -> str:
            proxy.check_alive()
            found = re.search(r"Starting to serve on (\S+)", log.read_text())
            assert found is not None
            return f"http://{found[1]}{prefix}"

        try:
            yield wait_until(address, what="kubectl proxy serves")
        finally:
            proxy.stop()

    def kubectl_argv(self, *arguments: str) -> list[str]:
        return [str(_KUBECTL), "--kubeconfig", str(self.kubeconfig), *arguments]

    def kubectl_env(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self._home),
            "KUBECACHEDIR": str(self._home / "cache"),
        }


class Workspace:
    """A namespace; `alice` may view it and nothing else, `bob` has no rights at all."""

    def __init__(self, cluster: Cluster, users: dict[str, User], *, name: str = "") -> None:
        self.cluster = cluster
        self.admin = users["admin"]
        self.alice = users["alice"]
        self.bob = users["bob"]
        # Numbered, for of a thousand that are random two are the same once in a while.
        self.name = name or f"team-{secrets.token_hex(3)}-{next(_numbers)}"
        cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": self.name}})
        bind_in_namespace(cluster.admin, self.name, "view", self.alice.name)

    @property
    def collection(self) -> str:
        """Our own list path for this namespace."""
        return f"{PREFIX}/namespaces/{self.name}/trainjobs"

    def start_job(
        self,
        name: str,
        script: str,
        *,
        image: str = "python:3",
        runtime: str = "torch-distributed",
        labels: dict[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        nodes: int = 1,
        accelerators: int = 0,
    ) -> Object:
        """Create a TrainJob that runs `script`; of annotations, ours go without their prefix. `accelerators`:
        of each node."""
        meta = {
            "name": name,
            "labels": labels or {},
            "annotations": {
                key if "/" in key else f"{GROUP}/{key}": value for key, value in (annotations or {}).items()
            },
        }
        variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
        return self.cluster.admin.create(
            f"{TRAINER}/namespaces/{self.name}/trainjobs",
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": meta,
                "spec": {
                    "runtimeRef": {"name": runtime},
                    "trainer": {
                        "image": image,
                        "command": ["python", "-c", script],
                        "env": variables,
                        "numNodes": nodes,
                        "resourcesPerNode": {"limits": {"nvidia.com/gpu": accelerators}}
                        if accelerators
                        else {},
                    },
                },
            },
        )

    def delete_job(self, name: str) -> None:
        self.cluster.admin.delete(f"{TRAINER}/namespaces/{self.name}/trainjobs/{name}")

    def document(self, name: str, user: User | None = None) -> Object:
        """The progress subresource, through the API server; the admin's view unless said otherwise."""
        api = self.cluster.admin if user is None else user.api
        return api.get(f"{self.collection}/{name}/progress")

    def wait_document(
        self,
        name: str,
        predicate: Callable[[Object], object],
        *,
        what: str,
        timeout_s: float = PATIENCE_S,
    ) -> Object:
        """Poll until `predicate` holds for the job's status; returns the document, which is the one it saw.

        An assertion that fails in there means: not yet. Only what the predicate looks at has been seen
        together; the next look may show another state.
        """

        def look() -> Object | None:
            document = self.document(name)
            assert predicate(document.get("status", {})), document.get("status")
            return document

        found = wait_until(look, what=f"{name}: {what}", timeout_s=timeout_s)
        assert found is not None
        return found

    def wait_reporting(self, name: str, *, beyond_step: int = 0) -> Object:
        return self.wait_document(
            name,
            lambda status: status.get("steps", {}).get("current", 0) > beyond_step,
            what=f"reports a step beyond {beyond_step}",
        )

    def wait_condition(self, name: str, type_: str, status: str, *, reason: str | None = None) -> Object:
        """Returns the condition."""
        document = self.wait_document(
            name,
            lambda seen: (
                (found := condition(seen, type_))["status"] == status
                and (reason is None or found["reason"] == reason)
            ),
            what=f"{type_}={status} {reason or ''}",
        )
        return condition(document["status"], type_)

    def follow(self, name: str, *, timeout_s: int = 80) -> Iterator[Object]:
        """The job's status now, and as each event of a watch shows it; ends after `timeout_s`."""
        query = {"timeoutSeconds": str(timeout_s), "fieldSelector": f"metadata.name={name}"}
        with self.cluster.admin.watch(self.collection, **query) as events:
            for event in events:
                assert event["type"] in ("ADDED", "MODIFIED"), event
                yield event["object"]["status"]

    def pods(self, job: str) -> list[Object]:
        return self.cluster.admin.items(
            f"/api/v1/namespaces/{self.name}/pods", labelSelector=f"jobset.sigs.k8s.io/jobset-name={job}"
        )

    def wait_running(self, job: str) -> Object:
        """Returns the job's first running pod."""

        def running() -> Object | None:
            return next(
                (pod for pod in self.pods(job) if pod.get("status", {}).get("phase") == "Running"), None
            )

        found = wait_until(running, what=f"a pod of {job} runs")
        assert found is not None
        return found

    def clean(self) -> None:
        """Delete the jobs; the controllers delete what hangs on them, the kubelet ends the processes."""
        jobs = f"{TRAINER}/namespaces/{self.name}/trainjobs"
        for job in self.cluster.admin.items(jobs):
            self.delete_job(job["metadata"]["name"])


def condition(status: Object, type_: str) -> Object:
    """The condition of that type; LookupError when there is none."""
    found = [each for each in status.get("conditions", []) if each["type"] == type_]
    if not found:
        raise LookupError(f"no condition {type_}")
    each: Object = found[0]
    return each
