"""The domain: what a training process says, what the cluster says of its job, and what to make of both.

Pure: no I/O, no clock of its own (every function that needs the time is given it), no Kubernetes object.
"""
