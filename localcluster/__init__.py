"""A single-process Kubernetes for the demo and the tests: real HTTP, TLS and RBAC; pods are local processes.

Three rooms that talk only through the Kubernetes API: the API server, the controllers, the kubelet.
The last two also run unchanged as clients of a real kube-apiserver. Nothing in visibility_api imports this.
"""

from localcluster.cluster import LocalCluster

__all__ = ["LocalCluster"]
