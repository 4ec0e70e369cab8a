"""Which job this pod is of: its kind, name, namespace and replica, as far as its launcher lets it know.

Each controller gives its pods names, which are their hosts', and variables. What neither says is left out:
`TRAINJOB_KIND`, `TRAINJOB_NAME` and `TRAINJOB_NAMESPACE` say it, by the downward API for instance.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping, Optional, Sequence

    Identity = dict[str, str]  # some of kind, job, namespace, replica

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_RESOLVER, _HOSTS = "/etc/resolv.conf", "/etc/hosts"
_SERVICES = re.compile(r"\bsearch\s+([a-z0-9-]{1,63})\.svc\b")
_OPERATORS = re.compile(r"(.+)-((?:master|worker|chief|ps|evaluator|launcher)(?:-\d{1,9})?)")
_INDEXED = re.compile(r"(.+)-(\d{1,9})")
_VOLCANO = re.compile(r"(.+)-([a-z0-9]+-\d{1,9})")
_RAY = re.compile(r"(.+?)(?:-raycluster)?-[a-z0-9]{5}")


def find_identity(environ: Optional[Mapping[str, str]] = None, host: Optional[str] = None) -> Identity:
    """What is known of this process's job. Reads files of the container once, so it is for the start."""
    environ = os.environ if environ is None else environ
    host = environ.get("HOSTNAME", "") if host is None else host
    found: Identity = {}
    if "KUBERNETES_SERVICE_HOST" in environ:  # set by the kubelet in every container
        found = next(filter(None, (find(environ, host) for find in _FINDERS)), {})
        namespace = _read(_ACCOUNT) or _first(_SERVICES, _read(_RESOLVER))
        if namespace:
            found["namespace"] = namespace
    for name, variable in _SAID.items():
        if environ.get(variable):
            found[name] = environ[variable]
    return found


_SAID = {"kind": "TRAINJOB_KIND", "job": "TRAINJOB_NAME", "namespace": "TRAINJOB_NAMESPACE"}


def _leader_worker_set(environ: Mapping[str, str], _host: str) -> Optional[Identity]:
    """The leader's address begins with its name, `<set>-<group>`."""
    leader = _INDEXED.fullmatch(environ.get("LWS_LEADER_ADDRESS", "").partition(".")[0])
    if leader is None:
        return None
    worker = environ.get("LWS_WORKER_INDEX")
    replica = f"{leader[2]}-{worker}" if worker else leader[2]
    return {"kind": "LeaderWorkerSet", "job": leader[1], "replica": replica}


def _ray_job(environ: Mapping[str, str], _host: str) -> Optional[Identity]:
    """KubeRay names the cluster of a job after it, with five characters more."""
    cluster = environ.get("RAY_CLUSTER_NAME")
    if not cluster:
        return None
    of_job = _RAY.fullmatch(cluster)
    replica = environ.get("RAY_NODE_TYPE_NAME", "")
    if replica == "headgroup":
        replica = "head"
    if "kuberay_crd=RayCluster" in environ.get("RAY_USAGE_STATS_EXTRA_TAGS", "") or of_job is None:
        return _named("RayCluster", cluster, replica)
    return _named("RayJob", of_job[1], replica)


def _tensorflow(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    return _of_operator("TFJob", host) if environ.get("TF_CONFIG") else None


def _paddle(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    """The operator sets PADDLE_JOB_ID to the job's name (release-1.9, `setPodEnv` in
    pkg/controller.v1/paddlepaddle/envvar.go). Paddle's own launcher passes it on."""
    found = _of_operator("PaddleJob", host)
    return found if found is not None and environ.get("PADDLE_JOB_ID") == found["job"] else None


def _volcano(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    match = _VOLCANO.fullmatch(host) if "VC_TASK_INDEX" in environ or "VK_TASK_INDEX" in environ else None
    return None if match is None else _named("VolcanoJob", match[1], match[2])


def _mpi(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    role = environ.get("K_MPI_JOB_ROLE") or environ.get("OMPI_MCA_plm_rsh_agent")
    if not role:
        return None
    launcher = re.fullmatch(r"(.+)-launcher(?:-[a-z0-9]{5})?", host)  # of a Job, or a pod of its own
    return _named("MPIJob", launcher[1], "launcher") if launcher else _of_operator("MPIJob", host)


def _jax(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    return _of_operator("JAXJob", host) if "COORDINATOR_ADDRESS" in environ else None


def _pytorch(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    """XGBoostJobs have the same variables, and the workers' addresses."""
    found = _of_operator("XGBoostJob" if "WORKER_ADDRS" in environ else "PyTorchJob", host)
    address = environ.get("MASTER_ADDR") or environ.get("PET_RDZV_ENDPOINT", "")
    is_its = found is not None and (host.endswith("-master-0") or address.startswith(f"{found['job']}-"))
    return found if is_its else None


def _job_set(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    """Pods of a JobSet have its name as their domain. Trainer's plugins add variables of torchrun or MPI."""
    entry = re.search(rf"\s{re.escape(host)}\.([a-z0-9-]{{1,63}})\.", _read(_HOSTS)) if host else None
    set_name = entry[1] if entry else environ.get("PET_MASTER_ADDR", "").partition(".")[2].partition(".")[0]
    if not set_name or not host.startswith(f"{set_name}-"):
        return None
    kind = "TrainJob" if "PET_NNODES" in environ or "KUBEFLOW_TRAINER_SERVER_URL" in environ else "JobSet"
    return _named(kind, set_name, host[len(set_name) + 1 :])


def _job(environ: Mapping[str, str], host: str) -> Optional[Identity]:
    index = environ.get("JOB_COMPLETION_INDEX")
    match = _INDEXED.fullmatch(host) if index else None
    return _named("Job", match[1], match[2]) if match is not None and match[2] == index else None


# The most specific first.
_FINDERS: Sequence[Callable[[Mapping[str, str], str], Optional[Identity]]] = (
    _leader_worker_set, _ray_job, _tensorflow, _paddle, _volcano, _mpi, _jax, _pytorch, _job_set, _job,
)  # fmt: skip


def _of_operator(kind: str, host: str) -> Optional[Identity]:
    """The training-operator names pods `<job>-<type>-<index>`."""
    match = _OPERATORS.fullmatch(host)
    return None if match is None else _named(kind, match[1], match[2])


def _named(kind: str, job: str, replica: str) -> Identity:
    return {"kind": kind, "job": job, **({"replica": replica} if replica else {})}


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64 * 1024).strip()
    except OSError:
        return ""
