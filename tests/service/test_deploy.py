"""What an operator applies: base, components and default, rendered by kustomize; and the image's pins."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster.demo import scenario as demo
from tests.e2e import manifests as tested
from visibility_api.assembly import LEASE
from visibility_api.certificates.secret import API_SERVICE, CONFIG_MAP, SERVICE
from visibility_api.kinds import RESOURCES, USERS
from visibility_api.models.served import TRAINING_JOBS
from visibility_api.models.sources import SOURCES
from visibility_api.serving.http_server import DRAIN_S
from visibility_api.settings import Settings, read_settings
from visibility_api.store.state_file import CHECKPOINT_BYTES, KEPT_ASIDE
from visibility_api.workloads.annotations import OPEN_DATA_HUB_PORT

ROOT = Path(__file__).parents[2]
LOG_MIB = 2 * CHECKPOINT_BYTES // 2**20  # it grows a little beyond that before it is emptied
PEERS = "visibility-api-peers"
Objects = dict[tuple[str, str], dict[str, Any]]


@functools.cache
def render(components: tuple[str, ...] | None = None) -> str:
    """deploy/default, or deploy/base with these components."""
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if kubectl is None:
        pytest.skip("no kubectl here")
    with tempfile.TemporaryDirectory() as directory:
        for part in ("apiservice", "deploy"):
            shutil.copytree(ROOT / part, Path(directory, part))
        target = Path(directory, "deploy/default")
        if components is not None:
            target = Path(directory, "deploy/chosen")
            target.mkdir()
            chosen = {
                "resources": ["../base"],
                "components": [f"../components/{each}" for each in components],
            }
            (target / "kustomization.yaml").write_text(yaml.safe_dump(chosen))
        command = [kubectl, "kustomize", str(target)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def by_name(rendered: str) -> Objects:
    things = yaml.load_all(rendered, yaml.CSafeLoader)  # a tenth of the time that Python takes
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in things}


@functools.cache
def made_of(*components: str) -> Objects:
    """deploy/base with these components."""
    return by_name(render(components))


@pytest.fixture(scope="module")
def objects() -> Objects:
    return by_name(render())


SERVER = {"kind": "ServiceAccount", "name": "visibility-api", "namespace": "trainjob-visibility"}
PAGE, CA_READER = "trainjob-visibility:page", "trainjob-visibility:ca-reader"


def server_pod(objects: Objects) -> dict[str, Any]:
    pod: dict[str, Any] = objects["Deployment", "visibility-api"]["spec"]["template"]["spec"]
    return pod


def flags_of(objects: Objects) -> list[str]:
    (container,) = server_pod(objects)["containers"]
    command, *flags = container["args"]
    assert command == "serve"
    return list(flags)


def settings(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    return read_settings(flags_of(objects))


def granted(objects: Objects) -> list[tuple[str, str, tuple[str, ...]]]:
    """Group, resource and verbs of every ClusterRole that the server itself is bound to."""
    names = [
        thing["roleRef"]["name"]
        for (kind, _), thing in sorted(objects.items())
        if kind == "ClusterRoleBinding"
        and thing["roleRef"]["name"].startswith("trainjob-visibility:")
        and thing["subjects"] == [SERVER]
    ]
    return [
        (group, resource, tuple(rule["verbs"]))
        for name in names
        for rule in objects["ClusterRole", name]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def test_the_apiservice_trusts_no_one_until_the_server_says_whom(objects: Objects) -> None:
    """Nothing that is applied again takes away what the server has written there, or holds a secret."""
    name = API_SERVICE.rpartition("/")[2]
    spec = objects["APIService", name]["spec"]
    assert not {"insecureSkipTLSVerify", "caBundle"} & spec.keys()
    assert (spec["service"]["namespace"], spec["service"]["name"]) == ("trainjob-visibility", SERVICE)
    for kind, each in (("Secret", CERTIFICATE), ("ConfigMap", CONFIG_MAP)):
        assert not {"data", "stringData"} & objects[kind, each].keys()


def test_the_server_may_change_the_objects_of_its_certificate_and_no_others(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(objects, monkeypatch)
    assert (chosen.certificate_secret, chosen.lease_namespace) == (CERTIFICATE, "trainjob-visibility")
    rules = [
        *objects["Role", "trainjob-visibility:certificate"]["rules"],
        *objects["ClusterRole", "trainjob-visibility:certificate"]["rules"],
    ]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in rules] == [
        (["secrets"], [CERTIFICATE], ["get", "patch"]),
        (["configmaps"], [CONFIG_MAP], ["get", "patch"]),
        (["apiservices"], [API_SERVICE.rpartition("/")[2]], ["get", "patch"]),
    ]


@pytest.mark.parametrize("name", ["existing-secret", "cert-manager"])
def test_a_certificate_of_somebody_else_leaves_the_server_no_right_to_a_secret(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    base, chosen = made_of(), made_of(name)
    found = settings(chosen, monkeypatch)
    assert not found.certificate_secret
    assert found.tls_cert_file is not None
    (mount,) = [each for each in server_pod(chosen)["containers"][0]["volumeMounts"] if each["name"] == "tls"]
    assert mount["mountPath"] == str(found.tls_cert_file.parent)
    assert [flag for flag in flags_of(base) if flag not in flags_of(chosen)] == [
        f"--certificate-secret={CERTIFICATE}"
    ]
    gone = base.keys() - chosen.keys()
    assert ("Role", "trainjob-visibility:certificate") in gone
    assert ("Secret", CERTIFICATE) in gone
    assert sorted(granted(chosen)) == sorted(right for right in FINDING if right != PUBLISHING)
    if name == "cert-manager":
        wanted = chosen["Certificate", "visibility-api-tls"]["spec"]
        assert wanted["dnsNames"][0] == f"{SERVICE}.trainjob-visibility.svc"
        injected = chosen["APIService", API_SERVICE.rpartition("/")[2]]["metadata"]["annotations"]
        assert injected == {"cert-manager.io/inject-ca-from": "trainjob-visibility/visibility-api-tls"}


def test_the_flags_are_ones_the_server_takes_and_its_end_fits_into_the_grace(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10: terminationGracePeriodSeconds must exceed delay and drain."""
    chosen = settings(objects, monkeypatch)
    pod = server_pod(objects)
    delay_s = chosen.shutdown_delay_duration.total_seconds()
    assert pod["terminationGracePeriodSeconds"] > delay_s + DRAIN_S
    (container,) = pod["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "https": chosen.secure_port
    }


def test_the_service_finds_the_pods_by_the_name_of_their_port(objects: Objects) -> None:
    (port,) = objects["Service", "visibility-api"]["spec"]["ports"]
    labels = objects["Deployment", "visibility-api"]["spec"]["template"]["metadata"]["labels"]
    assert (port["name"], port["port"], port["targetPort"]) == ("https", 443, "https")
    assert objects["Service", "visibility-api"]["spec"]["selector"].items() <= labels.items()
    assert objects["PodDisruptionBudget", "visibility-api"]["spec"]["selector"]["matchLabels"] == labels


def test_the_peers_are_the_addresses_of_all_replicas_on_the_port_that_they_serve_on(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers, service = objects["Service", PEERS], objects["Service", "visibility-api"]
    assert peers["spec"]["clusterIP"] == "None"  # a YAML null would make it an ordinary one
    assert peers["spec"]["selector"] == service["spec"]["selector"]
    meta, chosen = peers["metadata"], settings(objects, monkeypatch)
    assert chosen.peers == (f"{meta['name']}.{meta['namespace']}.svc",)
    assert [port["port"] for port in peers["spec"]["ports"]] == [chosen.secure_port]
    assert chosen.certificate_secret  # so the same one in all of them


def test_each_replica_is_scraped_once_and_known_by_the_ca_that_the_server_publishes() -> None:
    chosen = made_of("service-monitor", "job-monitoring", "job-metrics")
    spec = chosen["ServiceMonitor", "visibility-api"]["spec"]
    of_jobs = chosen["ServiceMonitor", "visibility-api-jobs"]["spec"]
    assert of_jobs["selector"] == spec["selector"]
    assert of_jobs["endpoints"][0].items() >= spec["endpoints"][0].items()
    role = chosen["ClusterRole", "trainjob-visibility:job-metrics"]
    assert role["rules"] == [{"nonResourceURLs": [of_jobs["endpoints"][0]["path"]], "verbs": ["get"]}]
    labels = spec["selector"]["matchLabels"].items()
    services = [thing for (kind, _), thing in chosen.items() if kind == "Service"]
    (service,) = [each for each in services if labels <= each["metadata"]["labels"].items()]
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert endpoint["tlsConfig"]["ca"]["configMap"]["name"] == CONFIG_MAP
    assert endpoint["tlsConfig"]["serverName"] == f"{SERVICE}.trainjob-visibility.svc"


def test_pods_of_its_priority_are_admitted_where_only_a_quota_allows_them(objects: Objects) -> None:
    spec = objects["ResourceQuota", "visibility-api-critical-pods"]["spec"]
    (scope,) = spec["scopeSelector"]["matchExpressions"]
    assert server_pod(objects)["priorityClassName"] in scope["values"]
    assert int(spec["hard"]["pods"]) > 2 * objects["Deployment", "visibility-api"]["spec"]["replicas"]


CERTIFICATE, CERTIFICATES = "visibility-api-certificate", ("cert-manager", "existing-secret")
PUBLISHING = ("apiregistration.k8s.io", "apiservices", ("get", "patch"))  # one, by name
FINDING = [
    PUBLISHING,
    ("trainer.kubeflow.org", "trainjobs", ("list", "watch")),
    ("jobset.x-k8s.io", "jobsets", ("list", "watch")),
    ("batch", "jobs", ("list", "watch")),
    ("", "pods", ("list", "watch")),
    *(("kubeflow.org", each, ("list", "watch")) for each in ("pytorchjobs", "tfjobs", "mpijobs")),
    *(("kubeflow.org", each, ("list", "watch")) for each in ("xgboostjobs", "paddlejobs", "jaxjobs")),
    *(("ray.io", each, ("list", "watch")) for each in ("rayjobs", "rayclusters")),
    ("leaderworkerset.x-k8s.io", "leaderworkersets", ("list", "watch")),
    ("batch.volcano.sh", "jobs", ("list", "watch")),
    ("apps", "statefulsets", ("list", "watch")),
]
# A right that is missing shows in e2e; one too many would show nowhere else.
COMPONENTS: dict[str, tuple[list[str], list[tuple[str, str, tuple[str, ...]]]]] = {
    "exec-by-namespace": (["--sources=exec"], []),
    "source-exec": (["--sources=exec"], [("", "pods/exec", ("get", "create"))]),
    "source-http": (["--sources=http"], []),
    "source-logs": (["--sources=logs"], [("", "pods/log", ("get",))]),
    "source-push": (
        ["--sources=push"],
        [
            ("", "pods", ("get",)),
            ("batch", "jobs", ("get",)),
            ("jobset.x-k8s.io", "jobsets", ("get",)),
            ("ray.io", "rayclusters", ("get",)),
            ("apps", "statefulsets", ("get",)),
        ],
    ),
    "kinds": (
        ["--kinds=/etc/visibility-api/kinds"],
        [("slurm.example.com", "slurmjobs", ("list", "watch"))],
    ),
    "write-back": (["--write-back=true"], [("trainer.kubeflow.org", "trainjobs/status", ("patch",))]),
    "archive": (
        ["--archive=s3://training-archive/jobs"],
        [("", "namespaces", ("get",)), ("", "events", ("list",))],
    ),
    "nats": (
        [
            "--store=nats://nats.nats:4222",
            "--store-credentials-file=/etc/visibility-api/store/credentials",
        ],
        [],
    ),
    "nats-servers": (
        [
            "--store=nats://visibility-api-nats:4222",
            "--store-credentials-file=/etc/visibility-api/store/credentials",
        ],
        [],
    ),
    "upstreams": (["--upstreams=/etc/visibility-api/upstreams"], []),
    "alerts": ([], []),
    "grafana": ([], []),
    "job-metrics": (["--job-metrics=5000"], []),  # its role is for Prometheus
    "job-monitoring": ([], []),
    "data-volume": ([], []),
    "network-policy": ([], []),
    "service-monitor": ([], []),
    "node-faults": (["--node-faults=true"], [("", "nodes", ("get",))]),
    "events": (["--events=true"], [("events.k8s.io", "events", ("create",))]),
    "trusted-proxy": (
        [
            "--trusted-proxy-client-ca-file=/etc/visibility-api/trusted-proxy/ca.crt",
            "--trusted-proxy-allowed-names=trainjob-visibility-ingress",
            "--trusted-proxy-user-header=kubeflow-userid",
        ],
        [],
    ),
}
NODE_FAULTS = "trainjob-visibility:node-faults"
CLAIM = "visibility-api-data"
# What a component adds or changes beside its flag and its rights.
ARCHIVED_EVENTS = "trainjob-visibility:archive-events"
MORE = {
    "archive": {("ClusterRole", ARCHIVED_EVENTS), ("ClusterRoleBinding", ARCHIVED_EVENTS)},
    "alerts": {("PrometheusRule", "trainjob-visibility")},
    "data-volume": {("PersistentVolumeClaim", CLAIM), ("PodDisruptionBudget", "visibility-api")},
    "exec-by-namespace": {("ClusterRole", "trainjob-visibility:source-exec")},  # bound by nobody
    "grafana": {("ConfigMap", "visibility-api-dashboards")},
    "job-metrics": {("ClusterRole", "trainjob-visibility:job-metrics")},
    "job-monitoring": {
        ("PrometheusRule", "trainjob-visibility-jobs"),
        ("ServiceMonitor", "visibility-api-jobs"),
    },
    "kinds": {
        ("ClusterRole", "trainjob-visibility:kinds-viewer"),
        ("ClusterRole", "trainjob-visibility:kinds-diagnoser"),
        ("ConfigMap", "visibility-api-kinds"),
    },
    "nats-servers": {
        *((kind, "visibility-api-nats") for kind in ("ConfigMap", "Service", "StatefulSet")),
        *((kind, "visibility-api-nats") for kind in ("NetworkPolicy", "PodDisruptionBudget")),
    },
    "node-faults": {("Role", NODE_FAULTS), ("RoleBinding", NODE_FAULTS)},  # in the namespace default
    "network-policy": {("NetworkPolicy", "visibility-api")},
    "service-monitor": {("ServiceMonitor", "visibility-api")},
    "trusted-proxy": {("Service", "visibility-api-dashboard")},
}


# Without what others contain: source-exec, and nats-servers.
EVERYTHING = tuple(name for name in COMPONENTS if name not in ("exec-by-namespace", "nats"))
assert not set(EVERYTHING) & set(CERTIFICATES)  # instead of what base has


def test_every_component_there_is_stands_in_the_table() -> None:
    assert {each.name for each in (ROOT / "deploy/components").iterdir()} == {*COMPONENTS, *CERTIFICATES}


def test_the_base_alone_reads_what_needs_no_further_right() -> None:
    base = made_of()
    assert granted(base) == FINDING
    assert [flag for flag in flags_of(base) if flag.startswith("--sources")] == ["--sources=status"]


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_brings_its_flag_and_its_rights_and_nothing_else(name: str) -> None:
    base, chosen = made_of(), made_of(name)
    flags, rights = COMPONENTS[name]
    assert flags_of(chosen) == [*flags_of(base), *flags]
    assert sorted(granted(chosen)) == sorted(FINDING + rights)
    role = f"trainjob-visibility:{name}"
    added = {("ClusterRole", role), ("ClusterRoleBinding", role)} if rights else set()
    more = MORE.get(name, set())
    assert chosen.keys() - base.keys() == added | (more - base.keys())
    same = base.keys() - {("Deployment", "visibility-api"), *more}
    assert {key: chosen[key] for key in same} == {key: base[key] for key in same}


def data_volume(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The volume that is mounted where --data-dir is."""
    pod, directory = server_pod(objects), settings(objects, monkeypatch).data_dir
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == str(directory)]
    assert not mount.get("readOnly")
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    found: dict[str, Any] = volume
    return found


def test_state_is_kept_in_a_directory_of_the_pod(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = data_volume(objects, monkeypatch)["emptyDir"]["sizeLimit"]
    # The file, those that were set aside, and a log of each.
    most_mib = (1 + KEPT_ASIDE) * (settings(objects, monkeypatch).data_dir_max_mib + LOG_MIB)
    assert limit == "1Gi"
    assert most_mib < 1024
    assert server_pod(objects)["securityContext"]["fsGroup"] == 65532


def test_state_on_a_volume_is_of_a_single_replica_that_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = made_of("data-volume")
    assert data_volume(chosen, monkeypatch)["persistentVolumeClaim"] == {"claimName": CLAIM}
    spec = chosen["Deployment", "visibility-api"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    budget = chosen["PodDisruptionBudget", "visibility-api"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert "minAvailable" not in budget
    claim = chosen["PersistentVolumeClaim", CLAIM]
    assert claim["metadata"]["namespace"] == chosen["Deployment", "visibility-api"]["metadata"]["namespace"]


def test_the_ca_of_the_trusted_proxy_is_mounted_where_the_flag_says(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = made_of("data-volume", "trusted-proxy")  # both change the volumes
    found = settings(chosen, monkeypatch)
    assert found.trusted_proxy_client_ca_file is not None
    pod = server_pod(chosen)
    folder = str(found.trusted_proxy_client_ca_file.parent)
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == folder]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert (mount["readOnly"], volume["configMap"]["name"]) == (True, "visibility-api-trusted-proxy")
    ports = [
        chosen["Service", name]["spec"]["ports"][0] for name in ("visibility-api", "visibility-api-dashboard")
    ]
    assert ports[0]["targetPort"] == ports[1]["targetPort"]


def test_the_lease_that_may_be_changed_is_the_one_that_the_server_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = made_of()
    role = chosen["Role", "trainjob-visibility:lease"]
    _, named = role["rules"]
    assert named["resourceNames"] == [LEASE]
    assert role["metadata"]["namespace"] == settings(chosen, monkeypatch).lease_namespace


def test_all_components_together_are_what_the_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [name for name in COMPONENTS if name.startswith("source-")]
    everything = made_of(*sources)
    assert set(settings(everything, monkeypatch).sources) == set(SOURCES)


def test_what_is_recommended_runs_nothing_in_pods_until_a_namespace_allows_it(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings(objects, monkeypatch).sources == ("status", "exec", "push")
    assert granted(objects) == FINDING + COMPONENTS["source-push"][1]


def test_the_e2e_suite_runs_with_what_is_recommended_and_exec_everywhere_the_demo_with_more() -> None:
    default = yaml.safe_load((ROOT / "deploy/default/kustomization.yaml").read_text())
    names = tuple(Path(path).name for path in default["components"])
    assert names == ("exec-by-namespace", "source-push")
    assert set(tested.COMPONENTS) <= set(demo.COMPONENTS)
    assert tested.COMPONENTS == ("source-exec", "source-push")


def test_the_server_may_find_every_kind_and_viewers_may_read_it(objects: Objects) -> None:
    found = {(objects_.api.split("/")[-2], objects_.plural) for objects_ in USERS}
    rules = objects["ClusterRole", "trainjob-visibility:server"]["rules"]
    allowed = {
        (group or "api", each) for rule in rules for group in rule["apiGroups"] for each in rule["resources"]
    }
    assert allowed == found
    viewer = objects["ClusterRole", "trainjob-visibility:viewer"]["rules"]
    assert [rule["resources"] for rule in viewer] == [
        [each.plural for each in (TRAINING_JOBS, *RESOURCES)],
        [f"{each.plural}/{below.name}" for each in RESOURCES for below in each.subresources],
        ["jobrecords", "jobrecords/history", "jobrecords/log-tail"],
    ]


def test_nobody_but_the_server_is_bound_to_more_than_the_page() -> None:
    everything = made_of(*EVERYTHING)
    bindings = [
        thing
        for (kind, name), thing in everything.items()
        if kind.endswith("RoleBinding") and name not in (PAGE, CA_READER)
    ]
    assert all(thing["subjects"] == [SERVER] for thing in bindings)
    assert {thing["roleRef"]["name"] for thing in bindings} == {
        "extension-apiserver-authentication-reader",
        "system:auth-delegator",
        "trainjob-visibility:server",
        "trainjob-visibility:lease",
        "trainjob-visibility:certificate",
        ARCHIVED_EVENTS,
        *(f"trainjob-visibility:{name}" for name, (_, rights) in COMPONENTS.items() if rights),
    }


def test_every_authenticated_user_may_open_the_page_and_nothing_more_comes_with_that(
    objects: Objects,
) -> None:
    """It holds no data; to a user without rights it names the one that is missing (decision 46)."""
    (reader,) = objects["Role", CA_READER]["rules"]
    assert (reader["resourceNames"], reader["verbs"]) == ([CONFIG_MAP], ["get"])
    (subject,) = objects["ClusterRoleBinding", PAGE]["subjects"]
    assert (subject["kind"], subject["name"]) == ("Group", "system:authenticated")
    assert objects["ClusterRole", PAGE]["rules"] == [
        {
            "apiGroups": ["visibility.trainer.kubeflow.org"],
            "resources": ["dashboard"],
            "verbs": ["get", "list"],
        }
    ]


def test_the_example_policies_let_the_server_through_to_open_data_hubs_port() -> None:
    text = (ROOT / "deploy/components/source-http/networkpolicies.yaml").read_text()
    ingress, egress = yaml.safe_load_all(text)
    (rule,) = ingress["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "trainjob-visibility"}
    assert peer["podSelector"] == egress["spec"]["podSelector"]
    ports = [{"protocol": "TCP", "port": OPEN_DATA_HUB_PORT}]
    assert rule["ports"] == ports
    assert egress["spec"]["egress"][0]["ports"] == ports


def test_the_image_is_built_with_the_setuptools_that_was_tested() -> None:
    pinned = [
        line
        for line in (ROOT / "requirements/build.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert pinned[0].startswith("setuptools==")
    assert "\n".join(pinned) in (ROOT / "requirements/dev.txt").read_text()
    assert "--no-build-isolation" in (ROOT / "Dockerfile").read_text()


def test_the_base_image_is_named_by_its_digest() -> None:
    """A tag is whatever somebody pushed last."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    images = [line.split()[1] for line in lines if line.startswith("FROM ")]
    given = dict(line.removeprefix("ARG ").split("=", 1) for line in lines if line.startswith("ARG "))
    assert images
    assert {image for image in images if image != "${PYTHON}"} == set()
    assert re.search(r"@sha256:[0-9a-f]{64}$", given["PYTHON"])
