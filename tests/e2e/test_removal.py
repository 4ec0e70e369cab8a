"""The commands that install and remove everything, kubectl's and helm's, in an API server of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests import charts
from tests.e2e.api import write_kubeconfig
from tests.e2e.kube import KubeApiserver, find_binaries
from tests.e2e.processes import Daemon, free_port, wait_until
from tests.e2e.test_install import OPERATORS_OWN
from tests.service.test_deploy import EVERYTHING, ROOT, render

# The claim of the component data-volume goes with the namespace.
NAMESPACED = "all,configmap,secret,role,rolebinding,poddisruptionbudget,resourcequota,networkpolicy"
OTHERS = "apiservice,clusterrole,clusterrolebinding,flowschema,prioritylevelconfiguration"


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of a shell whose kubectl is an administrator's of an empty cluster."""
    if request.config.getoption("--cluster") != "real":
        pytest.skip("the stand-in has neither all these kinds nor kubectl's deletion by label")
    kube = KubeApiserver(tmp_path / "control-plane", find_binaries()[0])
    kube.start()
    try:
        file = write_kubeconfig(
            tmp_path / "kubeconfig", url=kube.url, ca_file=kube.pki.serving.bundle, cert=kube.admin
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        yield {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(file)}
    finally:
        kube.stop()


def removal() -> list[str]:
    """The commands in the order of the document."""
    section = (ROOT / "docs/upgrade.md").read_text().partition("## Remove")[2]
    block = re.search(r"(?:^    .+\n)+", section, re.MULTILINE)
    assert block is not None
    commands = block[0].replace("\\\n", " ").strip().splitlines()
    # There is no namespace controller here, which would finish it.
    return [each.replace("delete namespace", "delete --wait=false namespace").strip() for each in commands]


@pytest.fixture
def run(environment: dict[str, str]) -> Callable[[str], str]:
    """A command of that shell, which must succeed; what it printed."""

    def run(command: str) -> str:
        told = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert told.returncode == 0, (command, told.stderr)
        return told.stdout

    return run


LABELLED = f"kubectl get {NAMESPACED},{OTHERS} -A -l app.kubernetes.io/name=trainjob-visibility -o name"


def test_the_commands_that_remove_it_leave_nothing_behind(run: Callable[[str], str], tmp_path: Path) -> None:
    objects = list(yaml.safe_load_all(render(EVERYTHING)))
    applied = [each for each in objects if each["kind"] not in OPERATORS_OWN]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(applied))
    apply = f"kubectl apply --validate=false -f {tmp_path / 'all.yaml'}"
    run(apply)
    changed = {line.split()[0] for line in run(apply).splitlines() if not line.endswith(" unchanged")}
    # kubectl sends their selectors, and templates of volumes, each time.
    assert changed == {
        "poddisruptionbudget.policy/visibility-api",
        "poddisruptionbudget.policy/visibility-api-nats",
        "statefulset.apps/visibility-api-nats",
    }
    nats = [
        each for each in applied if each["metadata"]["name"] == "visibility-api-nats"
    ]  # end with the namespace
    assert len(run(LABELLED).split()) >= len(applied) - len(nats) - 5
    commands = removal()
    assert "apiservice" in commands[0]
    for command in commands:
        run(command)
    assert run(LABELLED).split() == []


def test_helm_keeps_the_certificate_through_an_upgrade_and_leaves_nothing_behind(
    run: Callable[[str], str], tmp_path: Path
) -> None:
    helm, namespace = charts.find_helm(), "-n trainjob-visibility"
    values = {**charts.CHART_ONLY, "namespaces": [], "serviceMonitor": False, "prometheusRule": False}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    run(f"{helm} install tv {charts.CHART} {namespace} --create-namespace")
    before = set(run(LABELLED).split())
    assert "apiservice.apiregistration.k8s.io/v1alpha1.visibility.trainer.kubeflow.org" in before
    # As the server writes it (certificates/secret.py).
    patches = {
        "secret visibility-api-certificate": '{"data": {"tls.crt": "YQ=="}}',
        "configmap visibility-api-ca": '{"data": {"ca.crt": "a"}}',
        "apiservice v1alpha1.visibility.trainer.kubeflow.org": '{"spec": {"caBundle": "YQ=="}}',
    }
    for name, patch in patches.items():
        run(f"kubectl patch {namespace} {name} --type=merge -p '{patch}'")
    run(f"{helm} upgrade tv {charts.CHART} {namespace} -f {tmp_path / 'values.yaml'}")
    assert before < set(run(LABELLED).split())
    for name in patches:
        assert "YQ==" in (kept := run(f"kubectl get {namespace} {name} -o yaml")) or "ca.crt: a" in kept
    run(f"{helm} uninstall tv {namespace}")
    assert run(LABELLED).split() == []


@pytest.mark.parametrize("way", ["kubectl", "helm"])
def test_one_command_installs_check_is_content_and_removal_leaves_nothing(
    run: Callable[[str], str], environment: dict[str, str], tmp_path: Path, way: str
) -> None:
    install, remove = f"kubectl apply -k {ROOT / 'deploy/default'}", removal()
    if way == "helm":
        helm, place = charts.find_helm(), "tv -n trainjob-visibility"
        install = f"{helm} install {place} {charts.CHART} --create-namespace"
        remove = [f"{helm} uninstall {place}"]
    run(install)
    server, port = _pod_of_the_deployment(run, environment, tmp_path)
    server.start()
    try:
        _lead_to(run, port)

        def is_content() -> bool:
            server.check_alive()
            command = [sys.executable, "-m", "visibility_api", "check"]
            told = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
            return told.returncode == 0

        wait_until(is_content, what="check finds nothing broken", poll_s=1)
        assert "NAME" not in run("kubectl get tjs -A 2>/dev/null")  # it answers: there are none
        for command in remove:
            run(command)
        assert run(LABELLED).split() == []
    finally:
        server.stop(grace_s=5)


def test_the_server_runs_by_hand(
    run: Callable[[str], str], environment: dict[str, str], tmp_path: Path
) -> None:
    section = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## The server by hand")[2].partition("\n## ")[0]
    )
    serve, *others = [
        line.strip().replace("8443", str(port)).replace("/tmp/", f"{tmp_path}/")
        for port in [free_port()]
        for block in re.findall(r"(?:^    .+\n)+", section, re.MULTILINE)
        for line in block.replace("\\\n", " ").strip().splitlines()
    ]
    run(f"kubectl apply -f {ROOT / 'apiservice/rbac-users.yaml'}")
    server = Daemon("by hand", ["bash", "-c", f"exec {serve}"], log=tmp_path / "log", env=environment)
    server.start()
    try:
        wait_until(lambda: "readyz check passed" in run(others[0]), what="the server is ready", poll_s=1)
        assert run(others[1]) == ""  # there are none, which kubectl says on stderr
    finally:
        server.stop(grace_s=20)


def _pod_of_the_deployment(
    run: Callable[[str], str], environment: dict[str, str], directory: Path
) -> tuple[Daemon, int]:
    """A process with the arguments and the account of the Deployment's pods, where there is no kubelet."""
    namespace = "-n trainjob-visibility"
    found = json.loads(run(f"kubectl get deployment visibility-api {namespace} -o json"))
    command, *flags = found["spec"]["template"]["spec"]["containers"][0]["args"]
    of_a_pod = ("--secure-port", "--data-dir", "--peers", "--shutdown-delay-duration")
    kubeconfig, port = directory / "server.kubeconfig", free_port()
    admin = yaml.safe_load(Path(environment["KUBECONFIG"]).read_text())
    token = run(f"kubectl create token visibility-api {namespace}").strip()
    kubeconfig.write_text(yaml.safe_dump(admin | {"users": [{"name": "user", "user": {"token": token}}]}))
    argv = [
        *(sys.executable, "-m", "visibility_api", command, f"--kubeconfig={kubeconfig}"),
        *(flag for flag in flags if not flag.startswith(of_a_pod)),
        *("--bind-address=127.0.0.1", f"--secure-port={port}", "--peers=127.0.0.1:1"),
        f"--data-dir={directory}",
    ]
    return Daemon("visibility-api", argv, log=directory / "server.log", env=environment), port


def _lead_to(run: Callable[[str], str], port: int) -> None:
    """Service and APIService to that process, and a Deployment whose pods a kubelet would call ready."""
    outside = {
        "type": "ExternalName",
        "externalName": "localhost",
        "clusterIP": None,
        "clusterIPs": None,
        "selector": None,
        "ports": [{"name": "https", "port": port}],
    }
    status = {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}
    for name, patch in (
        ("service visibility-api", {"spec": outside}),
        ("apiservice v1alpha1.visibility.trainer.kubeflow.org", {"spec": {"service": {"port": port}}}),
        ("deployment visibility-api --subresource=status", {"status": status}),
    ):
        run(f"kubectl patch -n trainjob-visibility {name} --type=merge -p '{json.dumps(patch)}'")
