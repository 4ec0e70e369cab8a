"""`make demo`: a cluster, the server, and training jobs that go well, hang, diverge, leak, or report nothing.

Everything is real but the cluster: TLS, identities, RBAC, the aggregated API, kubectl, the training.
"""
