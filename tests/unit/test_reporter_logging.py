"""Log lines as JSON: what they say, that they are bounded, and that nothing is raised into the program."""

from __future__ import annotations

import io
import json
import logging
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from trainjob_progress import launchers, report
from trainjob_progress.launchers import find_identity
from trainjob_progress.lines import LineReader
from trainjob_progress.logging import MAX_BYTES, JSONHandler, configure

SECRET = "hunter2hunter2"
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


class Log:
    """A logger of its own, and what it has written."""

    def __init__(self, **context: object) -> None:
        self.stream = io.StringIO()
        self.logger = logging.Logger("train")
        configure(logger=self.logger, stream=self.stream, **context)

    def lines(self) -> list[dict[str, Any]]:
        text = self.stream.getvalue()
        assert all(len(line.encode()) <= MAX_BYTES for line in text.splitlines(keepends=True))
        return [
            json.loads(line, parse_constant=lambda _: pytest.fail("no JSON")) for line in text.splitlines()
        ]

    def line(self) -> dict[str, Any]:
        (line,) = self.lines()
        return line


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "HOSTNAME", "TRAINJOB_ATTEMPT", *IN_POD):
        monkeypatch.delenv(name, raising=False)


class Odd:
    def __repr__(self) -> str:
        raise ValueError(SECRET)


def test_a_line_says_of_which_job_and_process_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("TRAINJOB_ATTEMPT", "2")
    monkeypatch.setenv("TRAINJOB_NAME", "bert")
    log = Log(kind="PyTorchJob", namespace="team-a", replica="worker-2")
    log.logger.warning("epoch %d is over", 2, extra={"loss": 0.5, "lr": Decimal("0.1")})
    line = log.line()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "WARNING", "logger": "train", "message": "epoch 2 is over",
        "job": "bert", "kind": "PyTorchJob", "namespace": "team-a", "replica": "worker-2",
        "rank": 3, "attempt": 2, "loss": 0.5, "lr": 0.1,
    }  # fmt: skip


def test_the_step_is_that_of_the_run_which_reports(tmp_path: Path) -> None:
    from trainjob_progress.sinks.file import FileSink

    log = Log()
    with report(total_steps=10, sinks=[FileSink(str(tmp_path / "progress.json"))]) as r:
        r.step(4)
        log.logger.info("saved")
        log.logger.info("resumed", extra={"step": 7})
    log.logger.info("over")
    first, second, third = log.lines()
    assert (first["step"], first["total_steps"]) == (4, 10)
    assert second["step"] == 7
    assert "step" not in third


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (10**5000, "a int"),
        ({"a": [1, 2]}, {"a": [1, 2]}),
        ({1, 2}, "{1, 2}"),
        ([float("nan")], "[nan]"),
        (Odd(), "a Odd"),
        ([Odd()], "a list"),
        (b"x", "b'x'"),
        ("\ud800", "?"),
        ("x" * 9000, "x" * 1999 + "…"),
    ],
    ids=range(13),
)
def test_any_extra_is_shown(value: object, shown: object) -> None:
    log = Log()
    log.logger.info("a", extra={"value": value, "level": "no"})
    line = log.line()
    assert line["value"] == shown
    assert line["level"] == "INFO"


def test_nothing_is_raised_and_every_line_is_bounded() -> None:
    log = Log()
    circle: list[object] = []
    circle.append(circle)
    log.logger.info("%d steps", "no number")
    log.logger.info(Odd(), extra={"circle": circle})
    log.logger.info("%s", Odd())
    log.logger.info("é\x00" * 9000, extra={f"name-{i}" * 20: "\x00" * 3000 for i in range(1000)})
    log.logger.info("a\nb", stack_info=True)
    log.logger.handle(logging.makeLogRecord({"msg": "bare", "levelno": 30, "exc_info": True}))
    assert [line["message"][:9] for line in log.lines()] == [
        "%d steps ", "a Odd ()", "%s a tupl", "é\x00é\x00é\x00é\x00é", "a\nb", "bare",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["1", "0"])
def test_an_exception_is_shown_without_credentials(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TRAINJOB_PROGRESS_ERROR_TEXT", text)
    log = Log()
    try:
        try:
            raise OSError(f"postgres://train:{SECRET}@db refused")
        except OSError as error:
            raise ValueError("password=" + SECRET) from error
    except ValueError:
        log.logger.exception("failed")
    line = log.line()
    assert SECRET not in log.stream.getvalue()
    assert line["exception.type"] == "ValueError"
    assert line["exception.message"] == ("ValueError: password=…" if text == "1" else "ValueError")
    trace = line["exception.stacktrace"]
    assert trace.index("OSError") < trace.index("test_reporter_logging.py", trace.index("OSError"))


def test_a_stream_that_takes_nothing_costs_the_line(tmp_path: Path) -> None:
    log = Log()
    log.stream.close()
    log.logger.info("lost")
    ascii_only = (tmp_path / "log").open("w", encoding="ascii")
    configure(logger=log.logger, stream=ascii_only)
    log.logger.info("é")
    ascii_only.close()
    assert json.loads((tmp_path / "log").read_text())["message"] == "?"


def test_configure_takes_the_place_of_handlers_that_print(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.Logger("own")
    kept = logging.FileHandler("/dev/null", delay=True)
    logger.addHandler(logging.StreamHandler(sys.stdout))
    logger.addHandler(kept)
    first = configure(logger=logger)
    second = configure("DEBUG", logger=logger)
    assert logger.handlers == [kept, second]
    assert first is not second
    assert logger.level == logging.DEBUG
    assert isinstance(second, JSONHandler)
    assert second.stream is sys.stderr


@pytest.mark.parametrize(("rank", "is_read"), [(None, True), ("0", True), ("1", False)])
def test_the_logs_source_reads_progress_from_lines_of_rank_0(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, is_read: bool
) -> None:
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    log = Log(job="bert", kind="TrainJob", namespace="team-a", replica="node-0-0", attempt=3)
    log.logger.info("loss is 12.5 today", extra={"step": 30, "total_steps": 100, "loss": 0.5, "note": "x"})
    found = LineReader().read(log.stream.getvalue().rstrip())
    assert found == ({"step": 30, "total_steps": 100, "metrics": {"loss": 0.5}} if is_read else None)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("step 4/7 | loss: 0.5", {"step": 4, "total_steps": 7, "metrics": {"loss": 0.5}}),
        ("loss is 12.5 today, said step 4 of 7", None),
        ('{"step": 4}', None),
        ("", None),
    ],
)
def test_without_numbers_of_its_own_a_line_is_read_by_its_message(
    message: str, found: dict[str, Any] | None
) -> None:
    log = Log(attempt=3)
    log.logger.info(message)
    assert LineReader().read(log.stream.getvalue().rstrip()) == found


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Files of a pod of namespace team-a without a service account's, in the domain `bert`."""
    (tmp_path / "resolv.conf").write_text("search team-a.svc.cluster.local svc.cluster.local\nnameserver x\n")
    (tmp_path / "hosts").write_text("10.0.0.7\tbert-node-0-3.bert.team-a.svc.cluster.local\tbert-node-0-3\n")
    monkeypatch.setattr(launchers, "_ACCOUNT", str(tmp_path / "none"))
    monkeypatch.setattr(launchers, "_RESOLVER", str(tmp_path / "resolv.conf"))
    monkeypatch.setattr(launchers, "_HOSTS", str(tmp_path / "hosts"))
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "host", "found"),
    [
        ({"PET_NNODES": "4"}, "bert-node-0-3", "TrainJob bert node-0-3"),
        ({"JOB_COMPLETION_INDEX": "3"}, "bert-node-0-3", "JobSet bert node-0-3"),
        ({"JOB_COMPLETION_INDEX": "3"}, "bert-3", "Job bert 3"),
        ({"JOB_COMPLETION_INDEX": "3"}, "bert-4", None),
        ({"MASTER_ADDR": "bert-master-0", "RANK": "2"}, "bert-worker-1", "PyTorchJob bert worker-1"),
        ({"PET_RDZV_ENDPOINT": "a-b-worker-0:29400"}, "a-b-worker-1", "PyTorchJob a-b worker-1"),
        ({"MASTER_ADDR": "x", "WORKER_ADDRS": "y"}, "bert-master-0", "XGBoostJob bert master-0"),
        ({"MASTER_ADDR": "localhost"}, "web-worker-0", None),
        ({"TF_CONFIG": "{}"}, "bert-chief-0", "TFJob bert chief-0"),
        ({"PADDLE_JOB_ID": "bert", "MASTER_ADDR": "x"}, "bert-worker-0", "PaddleJob bert worker-0"),
        ({"COORDINATOR_ADDRESS": "bert-worker-0"}, "bert-worker-2", "JAXJob bert worker-2"),
        ({"K_MPI_JOB_ROLE": "worker"}, "bert-worker-1", "MPIJob bert worker-1"),
        ({"K_MPI_JOB_ROLE": "launcher"}, "bert-launcher-x7k2p", "MPIJob bert launcher"),
        ({"OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh"}, "bert-launcher", "MPIJob bert launcher"),
        ({"VC_TASK_INDEX": "1"}, "my-bert-master-1", "VolcanoJob my-bert master-1"),
        (
            {"LWS_LEADER_ADDRESS": "bert-1.bert.team-a", "LWS_WORKER_INDEX": "2"},
            "bert-1-2", "LeaderWorkerSet bert 1-2",
        ),
        (
            {"RAY_CLUSTER_NAME": "bert-x7k2p", "RAY_NODE_TYPE_NAME": "headgroup"},
            "bert-x7k2p-head-abcde", "RayJob bert head",
        ),
        (
            {"RAY_CLUSTER_NAME": "bert-raycluster-x7k2p", "RAY_NODE_TYPE_NAME": "gpu"}, "any",
            "RayJob bert gpu",
        ),
        (
            {"RAY_CLUSTER_NAME": "lab", "RAY_USAGE_STATS_EXTRA_TAGS": "kuberay_crd=RayCluster"},
            "lab-head-abcde", "RayCluster lab ",
        ),
        ({}, "nginx-5d4-abcde", None),
        ({"TRAINJOB_KIND": "Mine", "TRAINJOB_NAME": "own"}, "nginx", "Mine own "),
    ],
)  # fmt: skip
def test_the_job_is_known_by_what_each_launcher_sets(
    container: Path, environ: dict[str, str], host: str, found: str | None
) -> None:
    identity = find_identity({**environ, **IN_POD}, host)
    assert identity.pop("namespace") == "team-a"
    kind, job, replica = found.split(" ") if found is not None else ("", "", "")
    assert identity == {
        name: value for name, value in (("kind", kind), ("job", job), ("replica", replica)) if value
    }


def test_the_service_accounts_namespace_counts_first_and_a_variable_before_it(
    container: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (container / "namespace").write_text("team-b\n")
    monkeypatch.setattr(launchers, "_ACCOUNT", str(container / "namespace"))
    assert find_identity(IN_POD, "") == {"namespace": "team-b"}
    assert find_identity({**IN_POD, "TRAINJOB_NAMESPACE": "team-c"}, "") == {"namespace": "team-c"}


def test_off_a_cluster_nothing_is_known(container: Path) -> None:
    assert find_identity({"PET_NNODES": "4"}, "bert-node-0-3") == {}
