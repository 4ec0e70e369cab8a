"""The stand-in for kube-apiserver: identity, RBAC, storage, watches, patches, discovery, aggregation.

Requests enter in server.py. Item ids such as (W3) are explained in docs/kubernetes-api.md.
"""

from localcluster.apiserver.server import ApiServer

__all__ = ["ApiServer"]
