"""Which cluster, user and namespace: from kubeconfig files as kubectl merges them, or from a pod's account.

Files that a kubeconfig names are relative to it. Nothing here connects or runs anything.
Reference: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from .errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}


@dataclass(frozen=True)
class Context:
    """One cluster as one user. `cluster` and `user` are as in a kubeconfig, with absolute file names."""

    cluster: Dict[str, Any]
    user: Dict[str, Any] = field(default_factory=dict, repr=False)  # has secrets
    namespace: str = "default"
    name: str = ""
    user_name: str = ""
    files: Sequence[Path] = ()  # that it was read from


def load(
    config_file: Union[str, Path, None] = None,
    context: Optional[str] = None,
    *,
    cluster: Optional[str] = None,
    user: Optional[str] = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Context:
    """The context of that name, or the current one. `cluster` and `user` replace those that it names.

    Without `config_file`: the files in $KUBECONFIG, else ~/.kube/config, else the account of the pod that
    this runs in. Raises ConfigError.
    """
    files = _files(config_file)
    merged = _merge(files, must_exist=config_file is not None)
    if not merged["clusters"] and not merged["contexts"] and config_file is None and context is None:
        return _in_cluster(service_account, files)
    name = context or merged["current-context"]
    if not name:
        raise ConfigError("No current context is set: name one, or `kubectl config use-context NAME`.")
    chosen = _named(merged["contexts"], name, "context")
    cluster_name = cluster or chosen.get("cluster") or ""
    user_name = user or chosen.get("user") or ""
    found = _named(merged["clusters"], cluster_name, "cluster")
    if not found.get("server"):
        raise ConfigError(f"The cluster {cluster_name!r} of the kubeconfig names no server.")
    return Context(
        cluster=found,
        user=_named(merged["users"], user_name, "user") if user_name else {},
        namespace=chosen.get("namespace") or "default",
        name=name,
        user_name=user_name,
        files=files,
    )


def user_of(context: Context) -> Dict[str, Any]:
    """What its files say of its user now. Raises ConfigError."""
    users: Dict[str, Dict[str, Any]] = _merge(context.files, must_exist=False)["users"]
    return users.get(context.user_name, {})


def context_names(config_file: Union[str, Path, None] = None) -> List[str]:
    """Of all contexts, for completion."""
    return sorted(_merge(_files(config_file), must_exist=False)["contexts"])


def _files(config_file: Union[str, Path, None]) -> List[Path]:
    if config_file is not None:
        return [Path(config_file).expanduser().absolute()]
    named = [each for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return [Path(each).expanduser().absolute() for each in named] or [Path("~/.kube/config").expanduser()]


def _merge(files: Sequence[Path], *, must_exist: bool) -> Dict[str, Any]:
    """Of each name the first that is found, as kubectl does it."""
    merged: Dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for file in files:
        if not file.exists() and not must_exist:
            continue
        document = _read(file)
        merged["current-context"] = merged["current-context"] or document.get("current-context") or ""
        for kind in ("cluster", "user", "context"):
            for entry in document.get(f"{kind}s") or ():
                if not isinstance(entry, dict) or not isinstance(entry.get(kind) or {}, dict):
                    raise ConfigError(f"{file}: each of {kind}s needs a name and a {kind}.")
                content = dict(entry.get(kind) or {})
                for key in _FILES.get(kind, ()):
                    if content.get(key):
                        content[key] = str(file.parent / content[key])
                if kind == "user" and content.get("exec"):
                    content["exec"] = {**content["exec"], "_directory": str(file.parent)}
                merged[f"{kind}s"].setdefault(str(entry.get("name")), content)
    return merged


def _read(file: Path) -> Dict[str, Any]:
    import yaml

    try:
        with file.open("rb") as opened:
            document = yaml.load(opened, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is no YAML.") from error
    if document is not None and not isinstance(document, dict):
        raise ConfigError(f"{file} is no kubeconfig.")
    return document or {}


def _named(entries: Dict[str, Dict[str, Any]], name: str, kind: str) -> Dict[str, Any]:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ConfigError(f"The kubeconfig has no {kind} {name!r}; it has: {known}.")
    return entries[name]


def _in_cluster(account: Path, files: Sequence[Path]) -> Context:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").exists():
        looked = ", ".join(map(str, files))
        raise ConfigError(f"No kubeconfig at {looked}, and this is no pod with a service account.")
    try:
        namespace = (account / "namespace").read_text().strip()
    except OSError:
        namespace = "default"
    return Context(
        cluster={
            "server": f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            "certificate-authority": str(account / "ca.crt"),
        },
        user={"tokenFile": str(account / "token")},
        namespace=namespace,
        name="in-cluster",
    )
