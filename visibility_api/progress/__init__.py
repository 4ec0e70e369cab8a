"""The domain: what a training process reports, what the cluster shows of its job, and what follows from both.

Pure: no I/O, no clock of its own (every function that needs the time is given it), no Kubernetes object.
"""
