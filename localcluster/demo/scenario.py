"""What `make demo` shows: training jobs that go well and badly, what alice reads of them, and bob may not."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import shlex
import signal
import socket
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import yaml

from localcluster.__main__ import SERVER_ACCOUNT, SERVER_NAMESPACE, TEAM, add_people
from localcluster.cluster import LocalCluster
from localcluster.controllers.runtimes import TORCH
from localcluster.demo.browser import API, serving_browser
from localcluster.demo.installation import APISERVICE, component_flags, install
from localcluster.demo.kubectl import JOBS as ALL_KINDS, Kubectl
from localcluster.demo.other_kinds import install_pytorch_jobs, pytorch_job, start_job
from localcluster.machinery.metadata import Object

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
COMPONENTS = ("source-exec", "source-logs", "source-push", "events")  # of deploy/components
RUN_S = 36  # how long the good jobs train
SHOW_EVERY_S = 6
GIVE_UP_S = 150  # of waiting for what is wrong to be found, on a slow machine; it takes half a minute
DEADLINE_S = 240  # then the demo gives up: the machine is too slow
WIDTH = 80  # of what is printed

# Script and arguments of each.
JOBS = {
    "linear": ("digits.py", "--model", "linear", "--seconds", str(RUN_S)),
    "mlp": ("digits.py", "--model", "mlp", "--seconds", str(RUN_S - 6)),
    "prints-only": ("digits.py", "--report", "nothing", "--seconds", str(RUN_S - 12)),
    "garbage": ("digits.py", "--report", "garbage", "--seconds", str(RUN_S - 12)),
    "hangs": ("digits_on_ranks.py", "--hang-after", "6", "--seconds", str(RUN_S - 6)),
    "diverges": ("digits_in_trouble.py", "diverge", "--seconds", str(RUN_S - 6)),
    "leaks": ("digits_in_trouble.py", "leak", "--seconds", str(RUN_S - 6)),
    "slow-loader": ("digits_with_marks.py", "--seconds", str(RUN_S - 12), "--loading", "0.333"),
    "restarts": ("digits_with_marks.py", "--seconds", str(RUN_S - 12), "--die-after", "55"),
}
GOOD, HANGING, LEAKING = "linear", "hangs", "leaks"
LOADING, RESTARTING = "slow-loader", "restarts"
PYTORCH_JOB, PLAIN_JOB = "mlp", "prints-only"  # the others are TrainJobs
MEMORY_LIMIT = "256Mi"  # of the one that leaks; it starts with half of that
RANKS = 3  # of the one that hangs, each in a pod of its own
# Without it a run is given minutes, since a first evaluation or checkpoint may take that long. Ranks sample
# their stacks half a minute after the last step.
STALLED_AFTER = {"visibility.trainer.kubeflow.org/stalled-after": "35s"}
TO_BE_FOUND = {
    *((HANGING, "Stalled"), (HANGING, "Diagnosed")),
    *(("diverges", "Diverged"), (LEAKING, "Failed")),
}
RUNTIME = "torch-without-retries"  # so that a kill is the end of the job instead of a restart in place
RETRYING_RUNTIME = "torch-with-retries"
# Of the two that mark their time: where it went, and the kinds of which each has to have some.
SPENT = ("productive", "dataLoading", "checkpointSave", "evaluation", "lostProgress", "recovery")
TO_BE_SPENT = {
    LOADING: {"dataLoading", "evaluation"},
    RESTARTING: {"checkpointSave", "lostProgress", "recovery"},
}
LOADING_SHARE = (0.2, 0.5)  # of the time in which its steps are done
# Conditions that say what goes wrong while a job runs.
VERDICTS = ("Stalled", "Diverged", "Plateaued", "Straggling")


async def run(*, keep: bool) -> int:
    """Returns the exit code: 0 when all jobs ended and what is wrong with three of them was found."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory(prefix="trainjob-visibility-") as name:
        directory = Path(name)
        say("starting a local cluster: its pods are processes of this machine")
        async with LocalCluster.start(directory) as cluster, asyncio.timeout(None if keep else DEADLINE_S):
            await add_people(cluster)
            await install_pytorch_jobs(cluster.admin)
            say("installing the visibility server with the rights that its manifests grant, and no more")
            async with serving(cluster):
                return await play(cluster, stopped, keep=keep)


async def play(cluster: LocalCluster, stopped: asyncio.Event, *, keep: bool) -> int:
    alice, bob = Kubectl(cluster.kubeconfig("alice"), TEAM), Kubectl(cluster.kubeconfig("bob"), TEAM)
    say(
        f"creating {len(JOBS) - 2} TrainJobs, a PyTorchJob and a Job in namespace {TEAM}; "
        "they train on scikit-learn's digits"
    )
    await start_train_jobs(cluster)
    await start_job(cluster.admin, TEAM, PLAIN_JOB, command_of(PLAIN_JOB))
    async with (
        pytorch_job(cluster.admin, TEAM, PYTORCH_JOB, command_of(PYTORCH_JOB)),
        alice.client() as client,
        serving_browser(client, TEAM) as address,
    ):
        say("the same live in a browser, for as long as this runs (KEEP=1: until Ctrl-C)")
        print(f"  {address}", flush=True)
        said = await follow(alice, stopped)
        if said is None:
            say("stopping the cluster and its processes")
            return 130
        missing = TO_BE_FOUND - said
        for name, type_ in sorted(missing):
            say(f"{name}: not found to be {type_}, which is a fault of the server or of this demo")
        say("all have ended but the one that hangs; their documents stay with the jobs")
        await alice.show_jobs()
        say(
            f"where the time of two of them went: {LOADING} spends a third of it in its loader, "
            f"{RESTARTING} fails once and does some steps again"
        )
        await alice.show_columns([LOADING, RESTARTING], columns_of_time())
        say(f"which rank of {HANGING} the others wait for, and where it is: in its document, and as an Event")
        await alice.show_columns([HANGING], COLUMNS_OF_RANK)
        await alice.show_events("TrainingDiagnosed")
        for fault in find_faults(await alice.read(f"{API}/namespaces/{TEAM}/{ALL_KINDS}")):
            say(f"{fault}, which is a fault of the server or of this demo")
            missing = missing | {(fault, "")}
        say("bob has no rights in this namespace")
        await bob.show_jobs()
        print_commands(cluster, address, keep=keep)
        if keep:
            say("the cluster stays until Ctrl-C")
            await stopped.wait()
            say("stopping the cluster and its processes")
    return 1 if missing else 0


async def start_train_jobs(cluster: LocalCluster) -> None:
    await cluster.admin.create("trainingruntimes", make_runtime(RUNTIME, retries=0))
    await cluster.admin.create("trainingruntimes", make_runtime(RETRYING_RUNTIME, retries=2))
    for name in JOBS.keys() - {PYTORCH_JOB, PLAIN_JOB}:
        job = train_job(name, command_of(name), memory_limit=MEMORY_LIMIT if name == LEAKING else None)
        if name == RESTARTING:
            job["spec"]["runtimeRef"]["name"] = RETRYING_RUNTIME
            job["spec"]["trainer"]["command"] += ["--checkpoint", str(cluster.directory / "checkpoint")]
        if name == HANGING:
            job["metadata"]["annotations"] = STALLED_AFTER
            job["spec"]["trainer"]["numNodes"] = RANKS
            job["spec"]["trainer"]["command"] += ["--meet", str(cluster.directory / "meeting")]
        await cluster.admin.create("trainjobs", job)


def command_of(job: str) -> list[str]:
    script, *arguments = JOBS[job]
    return [sys.executable, str(EXAMPLES / script), *arguments]


async def follow(alice: Kubectl, stopped: asyncio.Event) -> set[tuple[str, str]] | None:
    """Show the jobs, and what is found about them when it is found, until all is over. Returns what that was,
    by job and condition; None when it ended by Ctrl-C."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    give_up = began + GIVE_UP_S
    said: set[tuple[str, str]] = set()
    while True:
        await alice.show_jobs()
        next_look = loop.time() + SHOW_EVERY_S
        while loop.time() < next_look:
            items = (await alice.read(f"{API}/namespaces/{TEAM}/{ALL_KINDS}"))["items"]
            for job, type_, text in verdicts(items):
                if (job, type_) not in said:
                    said.add((job, type_))
                    say(f"{job}, after {loop.time() - began:.0f} s: {text}")
            have_ended = {
                i["jobRef"]["name"] for i in items if i["status"]["phase"] in ("Succeeded", "Failed")
            }
            has_been_found = said >= TO_BE_FOUND or loop.time() > give_up
            if have_ended | {HANGING} >= JOBS.keys() and has_been_found:
                return said
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await stopped.wait()
                return None


def verdicts(items: list[Object]) -> list[tuple[str, str, str]]:
    """Job, condition and sentence of each thing that is wrong."""
    found = []
    for item in items:
        name, status = item["jobRef"]["name"], item["status"]
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        found += [
            (name, type_, f"{type_}. {conditions[type_]['message']}")
            for type_ in VERDICTS
            if type_ in conditions and conditions[type_]["status"] == "True"
        ]
        diagnosis = status.get("diagnosis", {})
        if diagnosis.get("suspects"):
            found.append((name, "Diagnosed", diagnosis["message"]))
        failure = status.get("failure")
        if failure is not None and status["phase"] == "Failed":
            how = f"{failure.get('reason', 'unknown')}, exit code {failure.get('exitCode', 'unknown')}"
            found.append((name, "Failed", f"Failed ({how}). {failure.get('message', '')}".rstrip()))
    return found


COLUMNS_OF_RANK = {
    "NAME": ".metadata.name",
    "REASON": ".status.diagnosis.reason",
    "RANK": ".status.diagnosis.suspects[0].rank",
    "POD": ".status.diagnosis.suspects[0].podName",
    "NODE": ".status.diagnosis.suspects[0].nodeName",
}


def columns_of_time() -> dict[str, str]:
    """Of `kubectl get -o custom-columns`: goodput in percent, and seconds of some kinds."""
    whole = ".status.goodput.whole"
    short = {"checkpointSave": "SAVE", "lostProgress": "LOST", "dataLoading": "LOADING"}
    seconds = {short.get(kind, kind.upper()): f"{whole}.seconds.{kind}" for kind in SPENT}
    return {"NAME": ".metadata.name", "GOODPUT": f"{whole}.percentage", **seconds}


def find_faults(jobs: Object) -> list[str]:
    """What the two that mark their time do not show of it."""
    faults = []
    for item in jobs["items"]:
        name = item["jobRef"]["name"]
        whole = item["status"].get("goodput", {}).get("whole", {}).get("seconds", {})
        lacking = sorted(kind for kind in TO_BE_SPENT.get(name, ()) if not whole.get(kind))
        if lacking:
            faults.append(f"{name} shows no time of {', '.join(lacking)}")
        if name == LOADING and not lacking:
            share = whole["dataLoading"] / (whole["dataLoading"] + whole.get("productive", 0))
            if not LOADING_SHARE[0] <= share <= LOADING_SHARE[1]:
                faults.append(f"{name} shows {share:.0%} of its time in its loader")
    return faults


def print_commands(cluster: LocalCluster, address: str, *, keep: bool) -> None:
    say("to try" if keep else "to try, after `make demo KEEP=1`, which leaves the cluster running")
    commands = [
        f"kubectl get tjs -n {TEAM} -w",
        f"kubectl get training -n {TEAM}",
        f"kubectl get tjp -n {TEAM} -o wide",
        f"kubectl get tjp {GOOD} -n {TEAM} -o yaml",
        f"kubectl get tjp {RESTARTING} -n {TEAM} -o jsonpath='{{.status.goodput.whole}}'",
        f"kubectl describe tjp {LEAKING} -n {TEAM}",
        f"kubectl get ptjp {PYTORCH_JOB} -n {TEAM} -o yaml",
        f"kubectl wait tjp/{GOOD} -n {TEAM} --for=condition=Complete",
        "kubectl explain tjp.status",
    ]
    if keep:
        # The environment's kubectl is on the path of `make` only, not of the shell these are typed in.
        own_bin = shlex.quote(str(Path(sys.executable).parent))
        users = ("alice", "bob", "admin")
        contexts = ":".join(str(cluster.kubeconfig(user)) for user in users)
        commands[:0] = [f"export PATH={own_bin}:$PATH", f"export KUBECONFIG={contexts}"]
    print("\n".join(f"  {command}" for command in commands), flush=True)
    if keep:
        say("alice may edit the namespace, bob nothing, admin everything: --context says who asks")
        print(f"  kubectl get tjp -n {TEAM} --context bob")
        say("to start another job, as admin: it trains for a minute")
        print(f"  kubectl create -f {write_another_job(cluster.directory)} --context admin")
        say("the dashboard")
        print(f"  {address}", flush=True)


def write_another_job(directory: Path) -> Path:
    """A manifest that may be created again and again."""
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        **train_job("", [sys.executable, str(EXAMPLES / "digits.py"), "--seconds", "60"]),
    }
    job["metadata"] = {"generateName": "another-", "namespace": TEAM}
    path = directory / "another-job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def train_job(name: str, command: Sequence[str], *, memory_limit: str | None = None) -> Object:
    trainer: Object = {"command": list(command)}
    if memory_limit:
        trainer["resourcesPerNode"] = {"limits": {"memory": memory_limit}}
    return {
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"runtimeRef": {"name": RUNTIME, "kind": "TrainingRuntime"}, "trainer": trainer},
    }


def make_runtime(name: str, *, retries: int) -> Object:
    """Kubeflow's own for PyTorch, whose containers are started again so often."""
    runtime = copy.deepcopy(TORCH)
    runtime |= {"kind": "TrainingRuntime", "metadata": {"name": name, "namespace": TEAM}}
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["backoffLimit"] = retries
    job["template"]["spec"]["restartPolicy"] = "OnFailure" if retries else "Never"
    return runtime


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
    filled = textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    print(f"\n{filled}", flush=True)
