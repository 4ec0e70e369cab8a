"""What the ranks of a stalled job do: one exec in each pod, for the files that ranks write and for /proc.

Only names of code, states of processes and times are printed: no arguments, no environment, no variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import structlog

from visibility_api.diagnosis.judging import MAX_STATES, PodState, diagnose
from visibility_api.diagnosis.reading import MAX_PROCESSES, MAX_RANKS, read_pod
from visibility_api.diagnosis.result import Diagnosis
from visibility_api.errors.text import describe_fault
from visibility_api.kube.client import KubeClient
from visibility_api.kube.errors import ApiError, ClusterError, Unreachable
from visibility_api.kube.exec import CommandFailed, ExecFailed, OutputTooLarge, execute

log = structlog.get_logger("visibility.diagnosis")

AT_A_TIME = 32  # pods
POD_TIMEOUT_S = 15.0
MAX_BYTES = 512 * 1024  # of a pod: MAX_RANKS files and traces, MAX_PROCESSES twice

# POSIX, as busybox has it. $1: the path of the progress file. `read` takes no part of a file but its line.
_SHELL = """
set -f; p=$1; echo "@now $(date +%s) $(uname -m) $(uname -n)"; echo "@self $$"; n=0; set +f
for f in "$p".rank-*; do set -f
k=${f##*.rank-}; case $k in *[!0-9]*|"") continue;; esac
[ -f "$f" ] || continue; n=$((n+1)); [ $n -le RANKS ] || break
echo "@rank $k"; head -c 2048 "$f"; echo
t=$f.trace; [ -s "$t" ] && [ "$t" -nt "$f" ] && [ -f "$t" ] || continue
echo "@trace $k"; tail -c 4096 "$t"; echo
done
look() { set +f; n=0; for d in /proc/[0-9]*; do set -f
s=; { while read -r l; do s="$s$l "; done <"$d/stat"; } 2>/dev/null; n=$((n+1)); [ $n -le PROCESSES ] || break
i=${d#/proc/}; r=${s##*) }; set -- $r; [ $# -ge 13 ] || continue
if [ $w = 1 ]; then c=; y=-; q=-
{ read -r c <"$d/comm"; read -r y v <"$d/syscall"; read -r q <"$d/wchan"; } 2>/dev/null
printf '@proc %s %s %s %s %s %s %s\\n' "$i" "$2" "$1" $((${12}+${13})) "${y:--}" "${q:--}" "$c"
else printf '@cpu %s %s %s\\n' "$i" "$1" $((${12}+${13})); fi
done; }
w=1; look; sleep 1; w=2; look; echo @end
"""
_PYTHON = """
import glob,os,platform,sys,time
p=sys.argv[1];print('@now',int(time.time()),platform.machine(),platform.node());print('@self',os.getpid())
def read(f,n=4096):
    try:
        with open(f,'rb') as h:return h.read(n).decode('utf-8','replace')
    except OSError:return ''
for f in glob.glob(glob.escape(p)+'.rank-*')[:RANKS*2]:
    k=f.rpartition('.rank-')[2]
    if not(k.isdigit() and os.path.isfile(f)):continue
    print('@rank',k);print(read(f,2048));t=f+'.trace'
    if os.path.isfile(t) and os.path.getsize(t) and os.path.getmtime(t)>os.path.getmtime(f):
        print('@trace',k);print(read(t,1<<20)[-4096:])
def look(first):
    for i in [d for d in os.listdir('/proc') if d.isdigit()][:PROCESSES]:
        d='/proc/'+i+'/';s=read(d+'stat').rpartition(') ')[2].split()
        if len(s)<13:continue
        c=int(s[11])+int(s[12]);y=(read(d+'syscall').split() or ['-'])[0];q=read(d+'wchan') or '-'
        if first:print('@proc',i,s[1],s[0],c,y,q,read(d+'comm').partition('\\n')[0])
        else:print('@cpu',i,s[0],c)
look(True);time.sleep(1);look(False);print('@end')
"""


def _bounded(script: str) -> str:
    return script.replace("RANKS", str(MAX_RANKS)).replace("PROCESSES", str(MAX_PROCESSES)).strip()


SHELL, PYTHON = _bounded(_SHELL), _bounded(_PYTHON)


class RankStates:
    """Reads them through kube-apiserver, and keeps nothing of them."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def diagnose(
        self, namespace: str, pods: Sequence[PodState], path: str, *, within_s: float, is_requested: bool
    ) -> Diagnosis:
        """Ask all of these pods, `AT_A_TIME` at one time, and judge what they say.

        `path`: of the progress file. A pod that has not answered in time has said nothing. Raises ApiError
        with status 403 if this server may exec into none of them: the first refusal is the last question.
        """
        at = datetime.now(UTC)  # a rank that goes on while the others are asked is not one that hangs
        until = asyncio.get_running_loop().time() + within_s
        slots = asyncio.Semaphore(AT_A_TIME)
        most = max(1, MAX_STATES // max(1, len(pods)))  # of one pod: none takes from what another says
        refused: list[ApiError] = []

        async def ask(pod: PodState) -> PodState:
            if pod.not_running or pod.unread:
                return pod
            async with slots:
                if refused:
                    return _silent(pod, _FORBIDDEN)
                left_s = min(POD_TIMEOUT_S, until - asyncio.get_running_loop().time())
                try:
                    return _cut(await self._ask(namespace, pod, path, left_s), most)
                except ApiError as error:
                    refused.append(error)
                    return _silent(pod, _FORBIDDEN)
                except Exception as error:  # of one pod: docs/decisions/0005
                    log.error("pod not read", namespace=namespace, pod=pod.name, **describe_fault(error))
                    return _silent(pod, "this server failed to read it")

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(pod), name=f"ranks of {pod.name}") for pod in pods]
        states = [task.result() for task in asked]
        if refused and not any(state.ranks for state in states):
            raise refused[0]
        return await asyncio.to_thread(diagnose, states, at, is_requested=is_requested)

    async def _ask(self, namespace: str, pod: PodState, path: str, timeout_s: float) -> PodState:
        if timeout_s <= 0:
            return _silent(pod, "it was not asked in time")
        try:
            try:
                output = await self._run(namespace, pod, ("sh", "-c", SHELL, "sh", path), timeout_s=timeout_s)
            except (ExecFailed, CommandFailed) as error:
                if isinstance(error, CommandFailed) and error.exit_code not in (126, 127):
                    raise
                if isinstance(error, ExecFailed) and not _is_missing(error):
                    raise
                output = await self._run(namespace, pod, ("python3", "-c", PYTHON, path), timeout_s=timeout_s)
        except TimeoutError:
            return _silent(pod, "it did not answer in time")
        except OutputTooLarge:
            return _silent(pod, "it printed too much")
        except CommandFailed as error:
            return _silent(pod, _NO_PROGRAM if error.exit_code in (126, 127) else "its sh or python3 failed")
        except ExecFailed as error:
            return _silent(
                pod, _NO_PROGRAM if _is_missing(error) else "its container could not run a program"
            )
        except ApiError as error:
            if error.status == 403:
                raise
            return _silent(pod, "its node gave no answer")
        except (Unreachable, ClusterError) as error:
            log.debug("pod not asked", namespace=namespace, pod=pod.name, error=type(error).__name__)
            return _silent(pod, "its node gave no answer")
        ranks = await asyncio.to_thread(read_pod, output)  # hostile lines take 11 ms
        return msgspec.structs.replace(pod, ranks=tuple(ranks))

    async def _run(self, namespace: str, pod: PodState, argv: tuple[str, ...], *, timeout_s: float) -> bytes:
        return await execute(
            self._client,
            namespace=namespace,
            pod=pod.name,
            container=pod.container_name,
            argv=argv,
            max_bytes=MAX_BYTES,
            timeout_s=timeout_s,
        )


_NO_PROGRAM = "its image has neither sh nor python3"
_FORBIDDEN = "this server has no right to exec into it"


def _silent(pod: PodState, why: str) -> PodState:
    return msgspec.structs.replace(pod, unread=why)


def _cut(pod: PodState, most: int) -> PodState:
    """Of a pod with more ranks than fit in what is kept of the job, the first ones."""
    if len(pod.ranks) <= most:
        return pod
    return msgspec.structs.replace(pod, ranks=pod.ranks[:most], unread="it has more ranks than are read")


def _is_missing(error: ExecFailed) -> bool:
    text = str(error)
    return "executable file not found" in text or "no such file or directory" in text
