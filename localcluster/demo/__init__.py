"""`make demo`: a cluster, the server, and training jobs that succeed, are killed, report nothing or garbage.

Everything is real but the cluster: TLS, identities, RBAC, the aggregated API, kubectl, the training.
"""
