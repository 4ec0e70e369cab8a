"""The FastAPI application: one chain that every request passes, and a router for each subject.

`create_app` builds it. The Kubernetes resource path (get, list, watch, tables) is answered by `kubeapi/`
inside the chain, before FastAPI's own layers; everything else is an operation in `routers/`.
"""

from .application import Application, create_app
from .dependencies import Parts
from .limits import Limits

__all__ = ["Application", "Limits", "Parts", "create_app"]
