"""The push endpoint: Kubeflow Trainer's own protocol, for clients that exist already.

docs/push.md describes it for users.
"""
