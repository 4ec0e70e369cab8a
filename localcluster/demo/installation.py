"""Installing the aggregated API server from its manifests, with a local process in place of its pods."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from localcluster.cluster import LocalCluster
from localcluster.machinery.metadata import Object
from localcluster.machinery.pki import Authority, write_pair
from localcluster.machinery.resources import BUILT_IN

_PLURALS = {resource.kind: resource.plural for resource in BUILT_IN}
APISERVICE = "v1alpha1.visibility.trainer.kubeflow.org"


async def install(
    cluster: LocalCluster, root: Path, components: Sequence[str], *, port: int
) -> tuple[Path, Path]:
    """Apply `root`'s apiservice/ and the rights of `components`, pointed at 127.0.0.1:port.

    Returns its serving certificate and key.
    """
    authority = Authority("visibility-api-ca")
    for thing in await asyncio.to_thread(_read, manifest_files(root, components)):
        if thing["kind"] == "APIService":
            service = thing["spec"]["service"]
            service["port"] = port
            thing["spec"]["caBundle"] = base64.b64encode(authority.certificate_pem).decode()
            await cluster.admin.create_missing("services", _external(service))
        await cluster.admin.create_missing(_PLURALS[thing["kind"]], thing)
    name = f"{service['name']}.{service['namespace']}.svc"
    return write_pair(
        cluster.directory / "pki",
        "visibility-api",
        authority.issue_server([name, "localhost"], ["127.0.0.1"]),
    )


def manifest_files(root: Path, components: Iterable[str]) -> list[Path]:
    """The files that the kustomizations of apiservice/ and of deploy/components/NAME list as resources."""
    return [
        directory / name
        for directory in (root / "apiservice", *_directories(root, components))
        for name in _kustomization(directory).get("resources", ())
    ]


def component_flags(root: Path, components: Iterable[str]) -> list[str]:
    """What deploy/components/NAME add to the arguments of `visibility-api serve`."""
    return [
        operation["value"]
        for directory in _directories(root, components)
        for patch in _kustomization(directory).get("patches", ())
        for operation in yaml.safe_load(patch["patch"])
        if operation["path"].endswith("/args/-")
    ]


def _directories(root: Path, components: Iterable[str]) -> list[Path]:
    """Of the components, each after those that it contains."""
    found: list[Path] = []
    for name in components:
        directory = root / "deploy" / "components" / name
        within = [Path(path).name for path in _kustomization(directory).get("components", ())]
        found += [*_directories(root, within), directory]
    return found


def _kustomization(directory: Path) -> Object:
    found: Object = yaml.safe_load((directory / "kustomization.yaml").read_text())
    return found


def _read(files: Iterable[Path]) -> list[Object]:
    """Every object of a kind that is served here (priority and fairness is not), namespaces first."""
    found = [
        thing for file in files for thing in yaml.safe_load_all(file.read_text()) if thing["kind"] in _PLURALS
    ]
    return sorted(found, key=lambda thing: thing["kind"] != "Namespace")


def _external(service: Object) -> Object:
    return {
        "metadata": {"name": service["name"], "namespace": service["namespace"]},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": service["port"]}]},
    }
