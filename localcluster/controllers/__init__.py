"""The controllers that turn a TrainJob into pods: Trainer, JobSet, Job, scheduler, and a little housekeeping.

Clients of the Kubernetes API, real or stand-in. trainjobs.py, jobsets.py and jobs.py compute the wanted
objects without I/O; reconciler.py compares them with the existing ones and writes the difference.
"""

from localcluster.controllers.reconciler import Controllers, install_runtimes

__all__ = ["Controllers", "install_runtimes"]
