"""A single-process Kubernetes for the demo and the tests: real HTTP, TLS and RBAC; pods are local processes.

Three rooms that talk only through the Kubernetes API: `apiserver/`, `controllers/`, `kubelet/`, on what they
share in `machinery/`. The last two also run unchanged as clients of a real kube-apiserver. `cluster.py`
starts the three, and `demo/` is what `make demo` shows with it. Nothing in visibility_api imports this.

What it leaves out: schemas and validation of objects (every kind is an open object), field ownership (an
apply is a merge), paging (a list is one page), dry runs, admission plugins, HTTP/2, exec by SPDY, stdin, and
isolation of any kind between pods. A client certificate of a foreign CA fails the handshake, not the request.
"""

from localcluster.cluster import LocalCluster

__all__ = ["LocalCluster"]
