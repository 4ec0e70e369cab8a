"""An aggregated Kubernetes API server for the progress of training jobs."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("trainjob-visibility")
except PackageNotFoundError:  # run from a tree that is not installed
    __version__ = "0.0.0"
