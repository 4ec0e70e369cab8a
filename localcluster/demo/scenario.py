"""What `make demo` shows: five training jobs, what alice reads about them, and that bob may read nothing."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import yaml

from localcluster.__main__ import SERVER_ACCOUNT, SERVER_NAMESPACE, TEAM, add_people
from localcluster.cluster import LocalCluster
from localcluster.controllers.runtimes import TORCH
from localcluster.demo.installation import APISERVICE, component_flags, install
from localcluster.demo.kubectl import API, Kubectl
from localcluster.machinery.metadata import Object

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits.py"
COMPONENTS = ("source-exec", "source-logs", "source-push")  # of deploy/components
RUN_S = 36  # how long the good jobs train
KILL_AFTER_S = 14
SHOW_EVERY_S = 6
DEADLINE_S = 240  # then the demo gives up: the machine is too slow

JOBS = {
    "digits-linear": ["--model", "linear", "--seconds", str(RUN_S)],
    "digits-mlp": ["--model", "mlp", "--seconds", str(RUN_S - 6)],
    "digits-killed": ["--model", "mlp", "--seconds", str(RUN_S)],
    "prints-only": ["--report", "nothing", "--seconds", str(RUN_S - 12)],
    "garbage": ["--report", "garbage", "--seconds", str(RUN_S - 12)],
}
KILLED = "digits-killed"
GOOD = "digits-mlp"
RUNTIME = "torch-without-retries"  # so that a kill is the end of the job instead of a restart in place


async def run(*, keep: bool) -> int:
    """Returns the exit code: 0 when all jobs ended."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory(prefix="trainjob-visibility-") as name:
        directory = Path(name)
        say("starting a local cluster: its pods are processes of this machine")
        async with LocalCluster.start(directory) as cluster, asyncio.timeout(None if keep else DEADLINE_S):
            await add_people(cluster)
            say("installing the visibility server with the rights that its manifests grant, and no more")
            async with serving(cluster):
                return await play(cluster, stopped, keep=keep)


async def play(cluster: LocalCluster, stopped: asyncio.Event, *, keep: bool) -> int:
    alice, bob = Kubectl(cluster.kubeconfig("alice"), TEAM), Kubectl(cluster.kubeconfig("bob"), TEAM)
    say(f"creating {len(JOBS)} TrainJobs in namespace {TEAM}; they train on scikit-learn's digits")
    await cluster.admin.create("trainingruntimes", runtime_without_retries())
    for name, arguments in JOBS.items():
        await cluster.admin.create("trainjobs", train_job(name, arguments))
    loop = asyncio.get_running_loop()
    began, is_killed = loop.time(), False
    while not await all_ended(alice):
        await alice.show_jobs()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHOW_EVERY_S):
                await stopped.wait()
        if stopped.is_set():
            say("stopping the cluster and its processes")
            return 130
        if not is_killed and loop.time() - began > KILL_AFTER_S:
            is_killed = await kill(cluster, KILLED)
            say(f"the training process of {KILLED} was killed, as the kernel does when memory runs out")
            say(f"what is known of {GOOD} meanwhile")
            await alice.show_raw(f"{API}/namespaces/{TEAM}/trainjobs/{GOOD}/progress")
    say("all jobs have ended; their last documents stay until the TrainJobs are deleted")
    await alice.show_jobs(wide=True)
    say("bob has no rights in this namespace")
    await bob.show_jobs()
    print_commands(cluster, keep=keep)
    if keep:
        say("the cluster stays until Ctrl-C")
        await stopped.wait()
        say("stopping the cluster and its processes")
    return 0


def print_commands(cluster: LocalCluster, *, keep: bool) -> None:
    say("to try" if keep else "to try, after `make demo KEEP=1`, which leaves the cluster running")
    commands = [
        f"kubectl get tjp -n {TEAM} -w",
        f"kubectl get tjp {GOOD} -n {TEAM} -o yaml",
        f"kubectl describe tjp {KILLED} -n {TEAM}",
        f"kubectl wait tjp/{GOOD} -n {TEAM} --for=condition=Complete",
        "kubectl explain tjp.status",
        f"kubectl get --raw {API}/namespaces/{TEAM}/trainjobs/{GOOD}/progress",
    ]
    if keep:
        # The environment's kubectl is on the path of `make` only, not of the shell these are typed in.
        own_bin = shlex.quote(str(Path(sys.executable).parent))
        users = ("alice", "bob", "admin")
        contexts = ":".join(str(cluster.kubeconfig(user)) for user in users)
        commands.insert(0, f"export PATH={own_bin}:$PATH KUBECONFIG={contexts}")
    print("\n".join(f"  {command}" for command in commands), flush=True)
    if keep:
        say("alice may view the namespace, bob nothing, admin everything: --context says who asks")
        print(f"  kubectl get tjp -n {TEAM} --context bob")
        say("to start another job, as admin: it trains for a minute")
        print(f"  kubectl create -f {write_another_job(cluster.directory)} --context admin", flush=True)


def write_another_job(directory: Path) -> Path:
    """A manifest that may be created again and again."""
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        **train_job("", ["--seconds", "60"]),
    }
    job["metadata"] = {"generateName": "another-", "namespace": TEAM}
    path = directory / "another-job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def train_job(name: str, arguments: list[str]) -> Object:
    return {
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "runtimeRef": {"name": RUNTIME, "kind": "TrainingRuntime"},
            "trainer": {"command": [sys.executable, str(DIGITS)], "args": arguments},
        },
    }


def runtime_without_retries() -> Object:
    runtime = copy.deepcopy(TORCH)
    runtime |= {"kind": "TrainingRuntime", "metadata": {"name": RUNTIME, "namespace": TEAM}}
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["backoffLimit"] = 0
    job["template"]["spec"]["restartPolicy"] = "Never"
    return runtime


async def kill(cluster: LocalCluster, job: str) -> bool:
    """Whether there was a process to kill."""
    for pod in await cluster.admin.list("pods", TEAM):
        name = pod["metadata"]["name"]
        if name.startswith(f"{job}-node-0-0-"):
            cluster.kubelet.kill(TEAM, name, signal.SIGKILL)
            return True
    return False


async def all_ended(kubectl: Kubectl) -> bool:
    listed = (await kubectl.read(f"{API}/namespaces/{TEAM}/trainjobs"))["items"]
    return sum(item["status"]["phase"] in ("Succeeded", "Failed") for item in listed) == len(JOBS)


@contextlib.asynccontextmanager
async def serving(cluster: LocalCluster) -> AsyncIterator[None]:
    """The server as a process of its own, registered with the cluster's aggregator."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    certificate, key = await install(cluster, ROOT, COMPONENTS, port=port)
    kubeconfig = await cluster.add_service_account(SERVER_ACCOUNT, SERVER_NAMESPACE)
    log = cluster.directory / "visibility-api.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "visibility_api", "serve"),
            *("--kubeconfig", str(kubeconfig)),
            *("--bind-address", "127.0.0.1"),
            *("--secure-port", str(port)),
            *("--tls-cert-file", str(certificate)),
            *("--tls-private-key-file", str(key)),
            *component_flags(ROOT, COMPONENTS),
            *("--probe-interval", "2s"),
            *("--probe-timeout", "2s"),
            *("--shutdown-delay-duration", "0s"),
            stdout=output,
            stderr=output,
        )
    try:
        await until_available(cluster, process, log)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until_available(cluster: LocalCluster, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(30):
        while True:
            if process.returncode is not None:
                said = await asyncio.to_thread(log.read_text, errors="replace")
                raise SystemExit(f"the server ended by itself; its log:\n{said}")
            found = await cluster.admin.get("apiservices", APISERVICE)
            conditions = found.get("status", {}).get("conditions", [])
            if any(c["type"] == "Available" and c["status"] == "True" for c in conditions):
                return
            await asyncio.sleep(0.2)


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)
