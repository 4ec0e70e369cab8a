"""The push endpoint: Kubeflow Trainer's own protocol, for clients that are not ours to change.

docs/push.md is its manual; workloads-and-protocols.md 1.1 says what those clients send and expect.
"""
