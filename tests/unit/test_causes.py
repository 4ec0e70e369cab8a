"""Why a program died, by what it printed. `recorded/` has what the programs of tests/causes/programs.py print."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.causes.programs import PROGRAMS, RECORDED
from tests.causes.unknown_programs import EXAMPLES, PROGRAMS as UNKNOWN_PROGRAMS, UNKNOWN
from visibility_api.causes.patterns import PATTERNS
from visibility_api.causes.reading import PROGRAM_ERROR, Cause, find_cause

ROOT = Path(__file__).parents[2]
CASCADE = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:4711"


def traceback(*errors: str, file: str = "/app/train.py", mark: str = "") -> list[str]:
    """Of exceptions of which each but the first was raised while the one before was handled."""
    lines = []
    for number, error in enumerate(errors):
        if number:
            lines += ["", "During handling of the above exception, another exception occurred:", ""]
        lines += [
            "Traceback (most recent call last):",
            f'  File "{file}", line 7, in main',
            "    go()",
            error,
        ]
    return [f"{mark}{each}" for each in lines]


def name_of(lines: list[str]) -> str | None:
    found = find_cause(lines)
    return found.name if found is not None else None


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_printed_when_it_died_says_why(name: str) -> None:
    program, lines = PROGRAMS[name], (RECORDED / f"{name}.txt").read_text().splitlines()
    found = find_cause(lines)
    assert found is not None
    assert found.name == program.cause, found
    assert program.says in found.says
    assert found.line.strip() in " ".join(lines) or found.line in "\n".join(lines)


# By the sources of what prints them; these need an accelerator, MPI or a launcher that is not here.
@pytest.mark.parametrize(
    ("cause", "line"),
    [
        (
            "AcceleratorOutOfMemory",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
            " 79.15 GiB of which 1.12 GiB is free. Process 4 has 78.03 GiB memory in use.",
        ),
        ("AcceleratorOutOfMemory", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB"),
        (
            "AcceleratorOutOfMemory",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
            " 17179869184 bytes.",
        ),
        ("AcceleratorOutOfMemory", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
        ("DeviceAssert", "RuntimeError: CUDA error: device-side assert triggered"),
        ("IllegalMemoryAccess", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        ("AcceleratorFault", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ("DriverMismatch", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
        ("NoAccelerator", "RuntimeError: No CUDA GPUs are available"),
        (
            "CollectiveTimeout",
            "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3. Original reason for failure"
            " was: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1198, OpType=ALLREDUCE,"
            " NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
        ),
        (
            "PeerLost",
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:2012, remote process"
            " exited or there was a network error, NCCL version 2.20.5",
        ),
        ("CommunicationFault", "torch.distributed.DistBackendError: NCCL error in: /pytorch/x.cpp:1, unhandled cuda error"),
        ("NotFinite", "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
        ("HubRefused", "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-6)"),
        ("StorageFault", "OSError: [Errno 116] Stale file handle: '/mnt/nfs/ckpt/step_100'"),
        ("ThreadLimit", "RuntimeError: can't start new thread"),
        # Connections to services, not to ranks.
        (PROGRAM_ERROR, "ConnectionRefusedError: [Errno 111] Connection refused"),
        (PROGRAM_ERROR, "ConnectionResetError: [Errno 104] Connection reset by peer"),
        (PROGRAM_ERROR, "BrokenPipeError: [Errno 32] Broken pipe"),
        (PROGRAM_ERROR, "redis.exceptions.ConnectionError: Error 111 connecting to db:6379. Connection refused."),
        (PROGRAM_ERROR, 'psycopg2.OperationalError: connection to server at "db", port 5432 failed: Connection refused'),
        (
            "DownloadFailed",
            "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        ),
    ],
)  # fmt: skip
def test_an_exception_that_cannot_be_raised_here_has_its_class(cause: str, line: str) -> None:
    assert name_of(traceback(line)) == cause


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("Killed", "mpirun noticed that process rank 1 with PID 0 on node b exited on signal 9 (Killed)."),
        ("SegmentationFault", "mpirun noticed that process rank 1 with PID 0 on node b exited on signal 11"),
        ("AcceleratorFault", "[12.3] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."),
        (
            "DeviceAssert",
            "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [1,0,0], thread:"
            " [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        ),
        ("FileMissing", "/bin/sh: 1: deepspeed: not found"),
        ("FileMissing", "bash: line 1: torchrun: command not found"),
        ("PermissionDenied", "/bin/bash: ./train.sh: Permission denied"),
        (
            "ImportFailed",
            "python: error while loading shared libraries: libcudart.so.12: cannot open shared object",
        ),
    ],
)
def test_a_line_that_is_no_exception_has_its_class(cause: str, line: str) -> None:
    assert name_of(["step 4/10 loss: 0.3", line]) == cause


def test_the_sizes_that_did_not_fit_are_named() -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        " GPU 0 has a total capacity of 79.15 GiB"
    )
    found = find_cause(traceback(line))
    assert found is not None
    assert found.says.startswith(
        "the accelerator's memory was full: 2.00 GiB more were requested of 79.15 GiB"
    )


def test_a_sign_of_another_ranks_failure_never_replaces_the_root() -> None:
    root = traceback("ValueError: bad record", mark="[rank1]: ")
    cascade = traceback(CASCADE, mark="[rank0]: ")
    for lines in (root + cascade, cascade + root):
        found = find_cause(lines)
        assert found is not None
        assert (found.name, found.rank) == (PROGRAM_ERROR, 1)
    assert name_of(cascade) == "PeerLost"


def test_of_ranks_that_are_marked_the_first_to_fail_counts() -> None:
    first = traceback("FileNotFoundError: [Errno 2] No such file or directory: 'a'", mark="[1,3]<stderr>: ")
    found = find_cause(first + traceback("MemoryError", mark="[1,0]<stderr>: "))
    assert found is not None
    assert (found.name, found.rank) == ("FileMissing", 3)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["training has ended"], id="nothing of the kind"),
        pytest.param([], id="nothing at all"),
        pytest.param(["", "", ""], id="empty lines"),
        pytest.param(["WARNING: Connection refused, trying again in 5 s", "giving up"], id="a warning"),
        pytest.param(["checking for No space left on device ... ok", "exit 3"], id="words in a sentence"),
        pytest.param(["Traceback (most recent call last):"], id="no end of a traceback"),
        pytest.param(["tests passed: Killed mutants 3"], id="a word that a kernel also prints"),
        pytest.param(["I0101 loss is nan for 3 of 1000 samples, skipped"], id="a remark on data"),
        pytest.param(["raised FileNotFoundError: will create it", "done", "exit 1"], id="an exception in a sentence"),
        pytest.param(traceback("SystemExit: 3"), id="an exit"),
        pytest.param(
            traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "), id="a launcher's"
        ),
        pytest.param(
            [*traceback("FileNotFoundError: no cache"), *(f"step {n}/100 loss: 0.{n}" for n in range(1, 9)), "bye"],
            id="an exception that the run went on after",
        ),
        pytest.param(
            [*traceback("ImportError: no apex"), *(f"loading shard {n}" for n in range(100))], id="long ago"
        ),
    ],
)  # fmt: skip
def test_an_unknown_cause_stays_unknown(lines: list[str]) -> None:
    assert find_cause(lines) is None


@pytest.mark.parametrize("log", sorted(UNKNOWN.glob("*.txt")), ids=lambda path: path.stem)
def test_what_healthy_and_silent_programs_printed_names_no_cause(log: Path) -> None:
    assert find_cause(log.read_text().splitlines()) is None


def test_twenty_kinds_of_failures_are_recorded_and_fifty_programs_without_one() -> None:
    assert {path.stem for path in RECORDED.glob("*.txt")} == PROGRAMS.keys()
    assert len({program.cause for program in PROGRAMS.values()}) >= 20
    names = {*UNKNOWN_PROGRAMS, *(f"example-{each}" for each in EXAMPLES)}
    assert {path.stem for path in UNKNOWN.glob("*.txt")} == names
    assert len(names) >= 50


def test_nothing_of_the_output_is_repeated_but_numbers_and_names_of_code() -> None:
    secret = "hunter2 token=abc"
    for error in (
        f"ValueError: {secret}", f"FileNotFoundError: {secret}", f"ModuleNotFoundError: No module named '{secret}'",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {secret}",
    ):  # fmt: skip
        found = find_cause(traceback(error, file=f"/{secret}"))
        assert found is not None
        assert secret not in found.says + found.hint + found.name
        assert secret in found.line


LINES = st.lists(
    st.one_of(
        st.text(max_size=80),
        st.sampled_from(
            ["Traceback (most recent call last):", '  File "x.py", line 1, in f', "", "E: x", CASCADE]
        ),
        st.sampled_from(
            [f"{mark}ValueError: x" for mark in ("[rank3]: ", "[1,2]<stderr>:", "(Actor pid=3) ")]
        ),
    ),
    max_size=60,
)


@given(LINES)
def test_any_text_gives_a_cause_in_our_words_or_none(lines: list[str]) -> None:
    found = find_cause(lines)
    if found is not None:
        assert found.name in {each.name for each in PATTERNS} | {PROGRAM_ERROR}
        assert len(found.says) < 500
        assert isinstance(found, Cause)


def test_each_class_is_described() -> None:
    described = (ROOT / "docs/diagnose.md").read_text()
    for name in {each.name for each in PATTERNS} | {PROGRAM_ERROR}:
        assert f"| `{name}` |" in described
