"""The answer of `/version`, in the form of every Kubernetes component."""

from __future__ import annotations

from .wire import WireModel


class VersionInfo(WireModel):
    """k8s.io/apimachinery/pkg/version.Info. Fields for which a Python build has no value are empty."""

    major: str
    minor: str
    git_version: str
    git_commit: str
    git_tree_state: str
    build_date: str
    go_version: str
    compiler: str
    platform: str
