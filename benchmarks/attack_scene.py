"""The server behind a real kube-apiserver, or a stand-in, its users, and what attackers have.

Behind the real one most jobs report in their own status. Those of a victim's namespace and of a tenant's have
pods on one node, some an initializer's. The tenant's accounts have each right that the tenant of a namespace
has, and no other. Of its jobs that have ended there are records, more than a list may read.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from tests.e2e.kube import find_binaries
from tests.e2e.manifests import ROOT, SERVICE_NAME, apply_rights, server_flags
from visibility_api.archive.index import Place

from . import kubernetes, push
from .control_plane import BARE_ONE, BARE_SERVICE_NAME, TRAINJOBS, ControlPlane, bare_bodies, control_plane
from .fleet import Pod, create_account, create_node, create_pods, token_of
from .kubelet import INITIALIZER
from .others import KUBE_LOGS, KUBE_READS, LIVEZ, PUSHES, PUSHES_PER_S, READS, User, Victims
from .processes import Server, free_port, process
from .scene import API, ONE, bare, certificates, fetch, scene, serving, until_all_probed

COMPONENTS = ("source-exec", "source-logs", "source-push")
PROBES_PER_S = 10.0  # of a kubelet, of /livez
LOGS_PER_S = 5.0
INTERVAL = "2s"  # of the victim's jobs
NODE = "node-0"
VICTIMS, PROBED = 12, 8  # jobs with pods in the victim's namespace; half of these by exec, half by log
ACCOUNTS = 10  # of the tenant
PREPARING = 12  # of the tenant's 60 jobs: their initializers run
RANKS = 22  # of each of the others: more than 1,000 pods
RECORDED_DAYS, RECORDS = 26, 4500  # of each day so many, 20 MB
GONE = 48  # pods of the tenant that were deleted
OTHERS, OTHERS_RANKS = 200, 4  # further namespaces of the tenant's, each with one job
ANNOTATION = "visibility.trainer.kubeflow.org/"
ATTACK = "attack"  # label of what attackers create


class Tenancy(msgspec.Struct, kw_only=True):
    """What attackers have in one namespace."""

    accounts: list[str] = msgspec.field(default_factory=list)  # tokens of accounts there
    namespace: str = ""
    jobs: list[str] = msgspec.field(default_factory=list)
    pods: list[tuple[str, str]] = msgspec.field(default_factory=list)  # path of a push, and the pod's token


class Access(Tenancy, kw_only=True):
    """What attackers have."""

    port: int  # the server's
    token: str  # of a user who may list all jobs
    weak_token: str  # of a user who may nothing
    kube_port: int = 0  # 0: there is no real kube-apiserver, and nothing of what follows
    others: list[Tenancy] = msgspec.field(default_factory=list)  # further namespaces of the tenant's
    gone: list[tuple[str, str]] = msgspec.field(default_factory=list)  # the same, of deleted pods


@dataclass(slots=True, kw_only=True)
class Scenery:
    """Our server and its users. Without `plane` there is no tenant."""

    ours: Server
    users: Sequence[User]
    access: Access
    directory: Path
    victims: Victims | None = None
    plane: ControlPlane | None = None
    beside: Server | None = None  # a bare server behind the same kube-apiserver
    kubelet: Server | None = None
    connections: int = 0  # files that the server has open when nobody attacks
    cpu_share: float = 0.0  # of a core that it uses then
    is_link_slow: bool = False  # to kube-apiserver, in all rows

    def set(self, *, pods: str = "quick", bytes_per_s: float = 0) -> None:
        """How the tenant's pods report (benchmarks/kubelet.py); how fast the link to kube-apiserver is."""
        for name, text in (("manner", pods), ("rate", f"{bytes_per_s}")):
            part = self.directory / "part"
            part.write_text(text)
            part.replace(self.directory / name)  # they are read at any moment

    @property
    def access_file(self) -> Path:
        return self.directory / "access"

    def clean(self) -> None:
        """Undo what the tenant has done to its objects. Blocks."""
        if self.plane is None:
            return
        api, namespace = self.plane.api, self.access.namespace
        kinds = (
            "/api/v1/{}/pods",
            "/apis/batch/v1/{}/jobs",
            "/apis/trainer.kubeflow.org/v1alpha1/{}/trainjobs",
            "/apis/slurm.example.com/v1/{}/slurmjobs",
        )
        for path in (kind.format(f"namespaces/{namespace}") for kind in kinds):
            for item in api.items(path, labelSelector=ATTACK):
                api.delete(f"{path}/{item['metadata']['name']}", gracePeriodSeconds=0)
        keys = (f"{ANNOTATION}interval", "filler")
        changes = {"annotations": dict.fromkeys(keys) | {f"{ANNOTATION}source": "push"}}
        _each(
            lambda name: api.patch(f"{TRAINJOBS.format(namespace)}/{name}", {"metadata": changes}),
            self.access.jobs,
        )


def _each(work: Any, items: Sequence[Any]) -> list[Any]:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(work, items))


@contextlib.asynccontextmanager
async def scenery(jobs: int) -> AsyncIterator[Scenery]:
    binaries, missing = find_binaries()
    if missing:
        print(f"before a stand-in, not a real kube-apiserver: {'; '.join(missing)}", flush=True)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-")))
        making = _stand_in(jobs, directory) if missing else _real(jobs, directory, stack, binaries)
        async with making as found:
            found.access_file.write_bytes(msgspec.json.encode(found.access))
            async with found.victims.living() if found.victims else contextlib.nullcontext():
                yield found


@contextlib.asynccontextmanager
async def _stand_in(jobs: int, directory: Path) -> AsyncIterator[Scenery]:
    async with scene(jobs, of_server=("--sources=exec,status,push",)) as at:
        direct = User(name=READS[0], server=at.ours, ca_file=at.ca_file, headers=at.by_token)
        aggregated = replace(direct, name=READS[1], certificate=at.proxy_certificate, headers=at.by_proxy)
        masters = (*at.by_proxy, ("X-Remote-Group", "system:masters"))
        yield Scenery(
            ours=at.ours,
            users=(direct, aggregated, replace(aggregated, name=READS[2], headers=masters), _kubelet(direct)),
            access=Access(port=at.ours.port, token=push.token(1), weak_token="made-up"),
            directory=directory,
        )


def _kubelet(direct: User) -> User:
    found = replace(direct, name=LIVEZ, headers=(), path="/livez", per_s=PROBES_PER_S)
    return replace(found, connections=1, keeps_connection=False)


@contextlib.asynccontextmanager
async def _real(
    jobs: int, directory: Path, stack: contextlib.ExitStack, binaries: dict[str, Path]
) -> AsyncIterator[Scenery]:
    plane = stack.enter_context(control_plane(directory, binaries))
    token = plane.prepare()
    apply_rights(plane.api, (*COMPONENTS, "archive", "kinds"))
    # In namespaces of their own: all service accounts of one have one share, and would be the users' too.
    reader = plane.token_with_rights("reader", kubernetes.namespace(1))
    nobody = plane.token_without_rights("nobody", kubernetes.namespace(2))
    plane.create_jobs(jobs)
    cert, key, ca = certificates(directory, SERVICE_NAME, BARE_SERVICE_NAME)
    kubelet_port, link_port, port = free_port(), free_port(), free_port()
    pair, clients = plane.kubelet_files()
    (directory / "manner").write_text("quick")
    (directory / "rate").write_text("0")
    victim, tenant = kubernetes.namespace(0), kubernetes.namespace(kubernetes.NAMESPACES - 1)
    async with (
        process(
            "benchmarks.kubelet", "--port", str(kubelet_port), "--clients", str(clients), "--quick", victim,
            "--cert", str(pair.cert), "--key", str(pair.key), "--manner", str(directory / "manner"),
            port=kubelet_port, log=directory / "kubelet.log",
        ) as kubelet,
        process(
            "benchmarks.slow_link", "--port", str(link_port), "--to", str(plane.server.port),
            "--rate", str(directory / "rate"),
            port=link_port, log=directory / "link.log",
        ),
    ):  # fmt: skip
        create_node(plane.api, NODE, kubelet_port)
        victims, logs = _victims(plane, victim)
        access = _tenant(plane, tenant, jobs)
        access.token, access.weak_token, access.port = reader, nobody, port
        for number in range(kubernetes.ALONE, kubernetes.ALONE + OTHERS):
            plane.api.create("/api/v1/namespaces", {"metadata": {"name": kubernetes.namespace(number)}})
        plane.create_jobs(OTHERS, first=kubernetes.ALONE)
        access.others = _each(lambda place: _other(plane, kubernetes.ALONE + place), range(OTHERS))
        tls = ("--cert", str(cert), "--key", str(key))
        kubeconfig = plane.kubeconfig(link_port)
        _fill_archive(plane, tenant, directory / "archive")
        stores = ("--archive", str(directory / "archive"), "--data-dir", str(directory / "data"))
        kinds = ("--kinds", str(ROOT / "deploy/components/kinds/kinds.yaml"))
        flags = ("--probe-interval", "15s", *stores, *kinds, *server_flags(COMPONENTS))
        async with (
            contextlib.AsyncExitStack() as bare_server,
            serving(directory, tls, kubeconfig, port, *flags) as ours,
        ):
            await until_all_probed(ours, ca, jobs + OTHERS, token=token)
            one = await fetch(ours, ca, ONE, token=token)
            beside = await bare_server.enter_async_context(bare(tls, directory, bare_bodies(one)))
            plane.register_ours(port, ca)
            plane.register_bare(beside.port, ca)
            for path in (ONE, BARE_ONE):
                await asyncio.to_thread(plane.wait_available, path)
            by_token = (("Authorization", f"Bearer {token}"),)
            direct = User(name=READS[0], server=ours, ca_file=ca, headers=by_token)
            aggregated = User(name=READS[1], server=plane.server, ca_file=plane.ca_file, headers=by_token)
            masters = replace(aggregated, name=READS[2], headers=(), certificate=plane.admin)
            yield Scenery(
                ours=ours,
                users=(
                    direct,
                    aggregated,
                    masters,
                    replace(aggregated, name=KUBE_READS[0], path=BARE_ONE),
                    replace(masters, name=KUBE_READS[1], path=BARE_ONE),
                    replace(
                        masters,
                        name=KUBE_LOGS,
                        server=replace(plane.server, port=link_port),
                        path=logs,
                        connections=1,
                        per_s=LOGS_PER_S,
                    ),
                    _kubelet(direct),
                ),
                access=access,
                directory=directory,
                victims=_watched(victims, direct, masters, victim, link_port),
                plane=plane,
                beside=beside,
                kubelet=kubelet,
            )


def _victims(plane: ControlPlane, namespace: str) -> tuple[list[tuple[str, str]], str]:
    """Names of jobs with pods, and the tokens of those that push; the path of a pod's last log line."""
    create_account(plane.api, namespace)
    found, logs = [], ""
    for place in range(VICTIMS + 1):
        number = (place + 1) * kubernetes.NAMESPACES
        source = "push" if place > PROBED else ("logs", "exec")[place % 2]
        group = "" if place else INITIALIZER
        pods = _give_pods(plane, number, {"source": source, "interval": INTERVAL}, group=group)
        found.append((kubernetes.job_name(number), token_of(plane.api, pods[0]) if source == "push" else ""))
        logs = f"/api/v1/namespaces/{namespace}/pods/{pods[0].name}/log?tailLines=1"
    return found, logs


def _watched(
    jobs: list[tuple[str, str]], direct: User, admin: User, namespace: str, link_port: int
) -> Victims:
    found = Victims(
        namespace=namespace,
        user=direct,
        admin=admin,
        beside=replace(admin, server=replace(admin.server, port=link_port)),
        watched=f"{API}/namespaces/{namespace}/trainjobs",
        objects=TRAINJOBS.format(namespace),
        all_objects=f"{TRAINJOBS.partition('/namespaces')[0]}/trainjobs",
        probed=[name for name, token in jobs if not token],
        pushers=(),
    )
    pushing = [(name, token) for name, token in jobs if token]
    found.pushers = [
        replace(
            direct,
            name=PUSHES,
            path=push.PATH.format(namespace, name),
            headers=(("Authorization", f"Bearer {token}"),),
            connections=1,
            per_s=PUSHES_PER_S / len(pushing),
            body=lambda name=name: found.push_body(name),
        )
        for name, token in pushing
    ]
    return found


def _give_pods(
    plane: ControlPlane, number: int, annotations: dict[str, str], ranks: int = 1, group: str = ""
) -> list[Pod]:
    path = f"{TRAINJOBS.format(kubernetes.namespace(number))}/{kubernetes.job_name(number)}"
    named = {f"{ANNOTATION}{name}": value for name, value in annotations.items()}
    uid = plane.api.patch(path, {"metadata": {"annotations": named}})["metadata"]["uid"]
    now = datetime.now(UTC)
    return create_pods(plane.api, number, uid, node=NODE, began=now, ranks=ranks, group=group)


def _fill_archive(plane: ControlPlane, namespace: str, archive: Path) -> None:
    """Records of the tenant's jobs of the last days, each with as many labels as are kept."""
    uid = plane.api.get(f"/api/v1/namespaces/{namespace}")["metadata"]["uid"]
    labels = json.dumps({f"label-{number}": "x" * 63 for number in range(56)})
    for age in range(1, RECORDED_DAYS + 1):
        day = f"{datetime.now(UTC) - timedelta(days=age):%Y-%m-%d}"
        line = (
            f'{{"kind":"JobRecord","metadata":{{"name":"{day}-%05d","namespace":"{namespace}",'
            f'"uid":"{day}-%05d","labels":{labels}}},"jobRef":{{"kind":"TrainJob"}},'
            f'"summary":{{"phase":"Succeeded","endTime":"{day}T10:30:45Z"}}}}\n'
        )
        path = archive / Place(namespace, uid, day).index_path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(igzip.compress("".join([line % (n, n) for n in range(RECORDS)]).encode(), 1))


def _tenant(plane: ControlPlane, namespace: str, jobs: int) -> Access:
    create_account(plane.api, namespace)
    accounts = plane.tenant(namespace, ACCOUNTS)
    numbers = range(kubernetes.NAMESPACES - 1, jobs, kubernetes.NAMESPACES)

    def one(number: int) -> list[tuple[str, str, str]]:
        path = push.PATH.format(namespace, kubernetes.job_name(number))
        pods = _give_pods(plane, number, {"source": "push"}, RANKS)
        return [(path, token_of(plane.api, pod), pod.name) for pod in pods]

    for number in numbers[-PREPARING:]:
        _give_pods(plane, number, {"source": "push"}, group=INITIALIZER)
    made = _each(one, numbers[:-PREPARING])
    pods = [of_job[rank] for rank in range(RANKS) for of_job in made]  # all rank 0 first
    gone = pods[-GONE:]
    at = f"/api/v1/namespaces/{namespace}/pods"
    _each(lambda pod: plane.api.delete(f"{at}/{pod[2]}", gracePeriodSeconds=0), gone)
    return Access(
        port=0,
        token="",
        weak_token="",
        kube_port=plane.server.port,
        accounts=accounts,
        namespace=namespace,
        jobs=[kubernetes.job_name(number) for number in numbers],
        pods=[(path, token) for path, token, _ in pods[:-GONE]],
        gone=[(path, token) for path, token, _ in gone],
    )


def _other(plane: ControlPlane, number: int) -> Tenancy:
    namespace, job = kubernetes.namespace(number), kubernetes.job_name(number)
    create_account(plane.api, namespace)
    pods = _give_pods(plane, number, {"source": "push"}, OTHERS_RANKS)
    path = push.PATH.format(namespace, job)
    return Tenancy(
        accounts=plane.tenant(namespace, 1),
        namespace=namespace,
        jobs=[job],
        pods=[(path, token_of(plane.api, pod)) for pod in pods],
    )
