"""A node whose pods are local processes. A client of the Kubernetes API, real or stand-in."""

from localcluster.kubelet.node import ADDRESS, Kubelet

__all__ = ["ADDRESS", "Kubelet"]
