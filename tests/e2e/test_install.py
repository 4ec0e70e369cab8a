"""The manifests with every component, and the chart, as a real API server takes them, admission included."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests import charts
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import NAMESPACE
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import User
from tests.service.test_deploy import EVERYTHING, ROOT, render

OPERATORS_OWN = {"PrometheusRule", "ServiceMonitor"}  # of an operator's CRD


@pytest.mark.parametrize("made_by", ["kustomize", "helm"])
def test_every_object_is_valid_and_the_pod_is_admitted_as_restricted(
    cluster: Cluster, server: VisibilityServer, users: dict[str, User], tmp_path: Path, made_by: str
) -> None:
    if cluster.kind != "real":
        pytest.skip("only kube-apiserver knows what it accepts; the stand-in takes anything")
    if made_by == "helm":  # the namespaces that it is bound in are not there
        rendered = charts.template(tmp_path, {**charts.CHART_ONLY, "namespaces": []})
    else:
        rendered = render(EVERYTHING)
    objects = [each for each in yaml.safe_load_all(rendered) if each]
    objects = [each for each in objects if each["kind"] not in OPERATORS_OWN]
    policies = (ROOT / "deploy/components/source-http/networkpolicies.yaml").read_text()
    objects.extend(
        {**policy, "metadata": {**policy["metadata"], "namespace": NAMESPACE}}
        for policy in yaml.safe_load_all(policies)
    )
    (deployment,) = (thing for thing in objects if thing["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": "admitted", "namespace": NAMESPACE}
    objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    for thing in objects:
        if thing["kind"] == "Service":  # the suite has one of that name, of another type
            thing["metadata"]["name"] += "-tried"
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    told = users["admin"].kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server"),
        *("--validate=strict", "--warnings-as-errors", "-f", str(file)),
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("(server dry run)") == len(objects)
