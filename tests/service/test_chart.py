"""The Helm chart: its values and their schema. Where there is helm: it makes the same as kustomize."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.charts import CHART, CHART_ONLY, FLAVOURS, ROOT, template
from tests.service.test_deploy import (
    SERVER,
    by_name,
    flags_of,
    render,
    server_pod,
)
from visibility_api.settings import read_settings

SCHEMA = yaml.safe_load((CHART / "values.schema.json").read_text())
SIZING = ROOT / "docs/sizing.md"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def merged(values: Mapping[str, Any], base: Mapping[str, Any] = VALUES) -> dict[str, Any]:
    """As Helm merges them."""
    return {
        **base,
        **{
            key: merged(value, base[key]) if isinstance(value, dict) and base.get(key) else value
            for key, value in values.items()
        },
    }


@pytest.mark.parametrize("values", [{}, CHART_ONLY, *(values for _, values in FLAVOURS.values())])
def test_the_schema_takes_the_values_that_are_documented_and_tested(values: Mapping[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(merged(values), SCHEMA)


@pytest.mark.parametrize(
    ("values", "at"),
    [
        ({"replica": 3}, ""),
        ({"replicas": 0}, "replicas"),
        ({"size": "huge"}, "size"),
        ({"image": {"digest": "latest"}}, "image/digest"),
        ({"sources": {"exec": True}}, "sources/exec"),
        ({"namespaces": ["Team A"]}, "namespaces/0"),
        ({"data": {"volume": "claim"}}, "replicas"),  # two replicas cannot share it
        ({"ingress": {"enabled": True, "host": "a.example"}}, "trustedProxy/enabled"),
        ({"trustedProxy": {"enabled": True}, "ingress": {"enabled": True}}, "ingress/host"),
        ({"certificate": {"caBundle": "TFMw"}}, "certificate/from"),  # which the server would replace
        ({"extraFlags": ["probe-interval: 30s"]}, "extraFlags/0"),
    ],
)
def test_a_value_that_means_nothing_is_refused_at_its_place(values: Mapping[str, Any], at: str) -> None:
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate(merged(values), SCHEMA)
    assert "/".join(map(str, refused.value.absolute_path)) == at


def keys(thing: Mapping[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in thing.items():
        found |= {prefix + key} | (keys(value, f"{prefix}{key}.") if isinstance(value, dict) else set())
    return found


def test_every_value_has_a_default_and_a_schema() -> None:
    def described(schema: Mapping[str, Any], prefix: str = "") -> set[str]:
        found = set()
        for key, value in schema.get("properties", {}).items():
            found |= {prefix + key} | described(value, f"{prefix}{key}.")
        return found

    assert described(SCHEMA) - {"global"} == keys(VALUES)


def test_the_defaults_are_those_of_kustomize_and_the_version_is_the_packages() -> None:
    base = yaml.safe_load((ROOT / "deploy/base/deployment.yaml").read_text())["spec"]
    (container,) = base["template"]["spec"]["containers"]
    sizes = yaml.safe_load((CHART / "sizes.yaml").read_text())
    assert sizes[VALUES["size"]] == container["resources"]
    assert list(sizes) == SCHEMA["properties"]["size"]["enum"]
    assert VALUES["replicas"] == base["replicas"]
    assert VALUES["image"]["repository"] == container["image"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (image,) = yaml.safe_load((ROOT / "deploy/base/kustomization.yaml").read_text())["images"]
    assert {chart["version"], chart["appVersion"], image["newTag"]} == {version}


def test_the_sizes_are_those_of_the_document() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \|.*\| `(\w+)` \| `(\w+)` \| `(\w+)` \|$", SIZING.read_text())
    sizes = yaml.safe_load((CHART / "sizes.yaml").read_text())
    assert rows == [
        (name, each["requests"]["cpu"], each["requests"]["memory"], each["limits"]["memory"])
        for name, each in sizes.items()
    ]


def test_every_file_that_a_template_reads_is_one_of_kustomizes() -> None:
    named = set()
    for file in (CHART / "templates").iterdir():
        named |= set(re.findall(r'"file" "([^"]+)"', file.read_text()))
    assert len(named) > 10
    for name in named:
        assert (CHART / "manifests" / name).is_file(), name
        kustomization = yaml.safe_load(
            (CHART / "manifests" / name).with_name("kustomization.yaml").read_text()
        )
        assert Path(name).name in kustomization["resources"], name


def test_each_component_is_compared() -> None:
    compared = {component for components, _ in FLAVOURS.values() for component in components}
    assert compared == {each.name for each in (ROOT / "deploy/components").iterdir()}


def normal(rendered: str) -> dict[str, Any]:
    """By kind, namespace and name; without the order of flags, volumes and objects, which means nothing."""
    found = {}
    for thing in filter(None, yaml.safe_load_all(rendered)):
        meta = thing["metadata"]
        if thing["kind"] == "Deployment":
            pod = thing["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            container["args"] = [container["args"][0], *sorted(container["args"][1:])]
            for each in (pod["volumes"], container["volumeMounts"]):
                each.sort(key=lambda one: one["name"])
        if "kinds.yaml" in thing.get("data", {}):
            thing["data"]["kinds.yaml"] = [*filter(None, yaml.safe_load_all(thing["data"]["kinds.yaml"]))]
        name = f"{thing['kind']} {meta.get('namespace', '')}/{meta['name']}"
        assert name not in found, name
        found[name] = thing
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_chart_and_kustomize_make_the_same_objects(tmp_path: Path, flavour: str) -> None:
    components, values = FLAVOURS[flavour]
    chart = normal(template(tmp_path, values))
    kustomize = normal(render(components))
    del kustomize["Namespace /trainjob-visibility"]  # of the administrator, or of --create-namespace
    assert chart.keys() == kustomize.keys()
    different = {name for name in chart if chart[name] != kustomize[name]}
    assert {name: chart[name] for name in different} == {name: kustomize[name] for name in different}


def test_the_chart_in_another_namespace_names_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**FLAVOURS["everything"][1], "certificate": {"from": "cert-manager"}}
    rendered = template(tmp_path, values, namespace="elsewhere")
    assert not re.search(r"namespace: trainjob-visibility\b|trainjob-visibility\.svc", rendered)
    assert {thing["metadata"].get("namespace") for thing in by_name(rendered).values()} == {
        None,
        "default",
        "elsewhere",
        "kube-system",
    }
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    chosen = read_settings(flags_of(by_name(rendered)))
    assert (chosen.lease_namespace, chosen.peers) == ("elsewhere", ("visibility-api-peers.elsewhere.svc",))


def test_with_namespaces_the_server_has_its_rights_to_jobs_in_these_only(tmp_path: Path) -> None:
    things = [*filter(None, yaml.safe_load_all(template(tmp_path, CHART_ONLY)))]
    bound: dict[str, set[str]] = {"": set(), "team-a": set(), "team-b": set()}
    for thing in things:
        if thing.get("subjects") == [SERVER] and thing["roleRef"]["kind"] == "ClusterRole":
            bound[thing["metadata"].get("namespace", "")].add(thing["roleRef"]["name"])
    assert bound.pop("") == {
        *("system:auth-delegator", "trainjob-visibility:certificate"),
        "trainjob-visibility:archive",
        "trainjob-visibility:node-faults",  # nodes have no namespace
    }
    assert bound["team-a"] == bound["team-b"]
    assert bound["team-a"] == {
        f"trainjob-visibility:{name}"
        for name in (
            *("server", "source-exec", "source-logs", "source-push"),
            *("kinds", "write-back", "events", "archive-events"),
        )
    }


def test_what_only_the_chart_has_reaches_the_pod(tmp_path: Path) -> None:
    rendered = by_name(template(tmp_path, CHART_ONLY))
    deployment, pod = rendered["Deployment", "visibility-api"]["spec"], server_pod(rendered)
    (container,) = pod["containers"]
    given = CHART_ONLY
    assert container["image"] == f"r.example/t@{given['image']['digest']}"
    assert container["imagePullPolicy"] == "Always"
    assert deployment["replicas"] == 3
    assert container["resources"] == yaml.safe_load((CHART / "sizes.yaml").read_text())["large"]
    assert pod["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"
    for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
        assert pod[name] == given[name]
    assert {"--probe-interval=30s", "--namespaces=team-a", "--namespaces=team-b"} <= set(container["args"])
    policy = rendered["NetworkPolicy", "visibility-api"]["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (
        ["Ingress", "Egress"],
        given["networkPolicy"]["egress"],
    )
    (rule,) = rendered["Ingress", "visibility-api-dashboard"]["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    port = rendered["Service", backend["name"]]["spec"]["ports"][0]["name"]
    assert (rule["host"], backend["port"]["name"]) == ("training.example.com", port)
