"""The commands of docs/upgrade.md that remove everything, in an API server of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.api import write_kubeconfig
from tests.e2e.kube import KubeApiserver, find_binaries
from tests.service.test_deploy import EVERYTHING, ROOT, render

# The claim of the component data-volume goes with the namespace.
NAMESPACED = "all,configmap,secret,role,rolebinding,poddisruptionbudget,resourcequota"
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


def test_the_commands_that_remove_it_leave_nothing_behind(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def run(command: str) -> str:
        told = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert told.returncode == 0, (command, told.stderr)
        return told.stdout

    objects = list(yaml.safe_load_all(render(tmp_path / "rendered", EVERYTHING)))
    applied = [each for each in objects if each["kind"] != "PrometheusRule"]  # of an operator's CRD
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(applied))
    run(f"kubectl apply --validate=false -f {tmp_path / 'all.yaml'}")
    label = "-l app.kubernetes.io/name=trainjob-visibility -o name"
    assert len(run(f"kubectl get {NAMESPACED},{OTHERS} -A {label}").split()) >= len(applied) - 5
    commands = removal()
    assert "apiservice" in commands[0]
    for command in commands:
        run(command)
    assert run(f"kubectl get {NAMESPACED},{OTHERS} -A {label}").split() == []
