"""What a run reports is read back with the trackers' own libraries; what is logged to them is reported."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = """
from trainjob_progress import termination, trackers
termination.FLUSH_TIMEOUT_S = 60  # the last points come however slow the machine is
"""
RUN = """
from trainjob_progress import report

with report(total_steps=40) as r:
    for step in range(1, 41):
        r.step(loss=1 / step)
        if step % 10 == 0:
            r.update(val_loss=2 / step)
            r.flush()
r.update(test_accuracy=0.5)
"""
Curves = dict[str, list[tuple[int, float]]]


def train(directory: Path, script: str, **environ: str) -> dict[str, Any]:
    """The document of a program in a process of its own."""
    (directory / "train.py").write_text(PATIENCE + script)
    path = directory / "document.json"
    paths = os.pathsep.join((str(ROOT / "reporter"), str(ROOT / "reporter/trainjob_progress/auto")))
    own = {
        "PYTHONPATH": paths, "TRAINJOB_PROGRESS_FILE": str(path), "TRAINJOB_NAME": "bert",
        "TRAINJOB_NAMESPACE": "team-a", "WANDB_MODE": "offline", "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": f"file://{directory}/mlruns", "TENSORBOARD_LOGGING_DIR": f"{directory}/logs",
    }  # fmt: skip
    result = subprocess.run(
        [sys.executable, "train.py"],
        cwd=directory,
        env={**os.environ, **own, **environ},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "trainjob_progress:" not in result.stderr, result.stderr[-3000:]
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def read_tensorboard(directory: Path) -> Curves:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(directory / "logs" / "bert"))
    found.Reload()
    return {
        name: [(each.step, each.value) for each in found.Scalars(name)] for name in found.Tags()["scalars"]
    }


def read_mlflow(directory: Path) -> Curves:
    mlflow = pytest.importorskip("mlflow")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = mlflow.MlflowClient(f"file://{directory}/mlruns")
    (run,) = client.search_runs(["0"])
    assert (run.info.run_name, run.info.status) == ("bert", "FINISHED")
    assert run.data.tags["kubeflow.job.namespace"] == "team-a"
    return {
        name: [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


def read_wandb(directory: Path) -> Curves:
    """W&B's file: a header of 7 bytes, then LevelDB's log of records."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    data, at, record, curves = path.read_bytes(), 7, b"", {}
    ended = None
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            message = messages.Record.FromString(record)
            record = b""
            row = {
                item.key or item.nested_key[0]: json.loads(item.value_json) for item in message.history.item
            }
            for name, value in row.items():
                if not name.startswith("_") and name != "trainer/global_step":
                    curves.setdefault(name, []).append((row["trainer/global_step"], value))
            if message.HasField("exit"):
                ended = message.exit.exit_code
            if message.HasField("run"):
                assert message.run.display_name == "bert"
    assert ended == 0
    return curves


@pytest.mark.parametrize(
    ("name", "read", "takes_results"),
    [("tensorboard", read_tensorboard, True), ("mlflow", read_mlflow, True), ("wandb", read_wandb, False)],
)
def test_what_a_run_reports_is_in_the_tracker(
    tmp_path: Path, name: str, read: Any, takes_results: bool
) -> None:
    if name != "tensorboard":  # which is not needed for writing
        pytest.importorskip(name)
    train(tmp_path, RUN, TRAINJOB_PROGRESS_SINKS=name)
    curves = read(tmp_path)
    assert curves["val_loss"] == [(step, pytest.approx(2 / step)) for step in (10, 20, 30, 40)]
    assert curves["loss"] == [(step, pytest.approx(1 / step)) for step, _ in curves["loss"]]
    assert (curves["loss"][0][0], curves["loss"][-1][0]) == (1, 40)
    assert curves.get("test_accuracy") == ([(40, 0.5)] if takes_results else None)


def test_a_name_that_mlflow_refuses_holds_nothing_else_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("TRAINJOB_NAME", "bert")
    monkeypatch.setenv("TRAINJOB_NAMESPACE", "team-a")
    monkeypatch.syspath_prepend(str(ROOT / "reporter"))
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    point = import_module("trainjob_progress.trackers").Point
    run = import_module("trainjob_progress.trackers.mlflow").MLflowRun(None, {})
    long = "a" * 251
    for step in range(1, 4):
        values = {"loss": 1 / step, "val//loss": 2 / step, "../up": 3.0, "a:b/日本": 4.0, long: 5.0}
        run.log([point(1000.0 + step, step, values)])
    run.end("finished")
    curves = read_mlflow(tmp_path)
    assert [step for step, _ in curves["loss"]] == [step for step, _ in curves["val/loss"]] == [1, 2, 3]
    assert sorted(curves) == ["a:b/__", "loss", "up", "val/loss"]
    assert capfd.readouterr().err.count("does not take the metric 'aaa") == 1


def test_a_run_of_mlflow_that_is_deleted_loses_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: MLflow answers as for a bad name, and all metrics were left out, of the restored run too."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.syspath_prepend(str(ROOT / "reporter"))
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    point = import_module("trainjob_progress.trackers").Point
    client = mlflow.MlflowClient()
    run_id = client.create_run("0").info.run_id
    run = import_module("trainjob_progress.trackers.mlflow").MLflowRun(run_id, {})
    points = [point(1000.0, 1, {"loss": 1.0, "accuracy": 0.5})]
    client.delete_run(run_id)
    with pytest.raises(mlflow.exceptions.MlflowException, match="active"):
        run.log(points)
    client.restore_run(run_id)
    run.log(points)
    assert sorted(client.get_run(run_id).data.metrics) == ["accuracy", "loss"]


WRITERS = {
    "torch": """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs")
for step in range(1, 31):
    writer.add_scalar("loss", 1 / step, step)
    writer.add_scalar("epoch", step / 10, step)
writer.add_scalars("val", {"loss": 0.5}, 3)
writer.close()  # else the end of the process may come before its thread has written all
""",
    "mlflow": """
import mlflow
with mlflow.start_run():
    for step in range(1, 31):
        mlflow.log_metric("loss", 1 / step, step=step)
    mlflow.log_metrics({"val/loss": 0.5, "epoch": 3, "system/cpu": 1}, step=3)
    mlflow.log_params({"a": 1})
""",
    "wandb": """
import wandb
with wandb.init(settings=wandb.Settings(console="off")) as run:
    for step in range(1, 31):
        wandb.log({"loss": 1 / step, "trainer/global_step": step})
    run.log({"val": {"loss": 0.5}, "epoch": 3, "picture": wandb.Html("<p>"), "text": "none"})
""",
}
WRITERS["tensorboardX"] = WRITERS["torch"].replace("torch.utils.tensorboard", "tensorboardX")


WRITERS["tensors, as tf.summary"] = """
import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto
writers = {name: EventFileWriter("runs" + name) for name in ("", "/val")}
def write(run, tag, value, step):
    tensor = make_tensor_proto(np.float32(value))
    writers[run].add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, tensor=tensor)])))
for step in range(1, 31):
    write("", "loss", 1 / step, step)
    write("", "epoch", step / 10, step)
for each in writers.values():
    each.flush()
write("/val", "loss", 0.5, 3)
for each in writers.values():
    each.close()
"""


@pytest.mark.parametrize("name", ["tensorboardX", "tensors, as tf.summary", "torch"])
def test_event_files_are_read_beside_a_command(tmp_path: Path, name: str) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip(name.replace("tensors, as tf.summary", "numpy"))
    script = WRITERS[name].replace("val.loss", "val/loss")
    run = (
        "import subprocess, sys, trainjob_progress.run as run\n"
        f"open('program.py', 'w').write({script!r})\n"
        "sys.exit(run.main(['--event-files', 'runs', '--', sys.executable, 'program.py']))"
    )
    document = train(tmp_path, run)
    assert (document["step"], document["epoch"], document["metrics"]["loss"]) == (
        30,
        3,
        pytest.approx(1 / 30),
    )
    assert [value for key, value in document["metrics"].items() if key.startswith("val")] == [0.5]


@pytest.mark.parametrize("how", ["variable", "call"])
@pytest.mark.parametrize("name", ["mlflow", "tensorboardX", "torch", "wandb"])
def test_what_is_logged_to_a_tracker_is_reported_without_a_change_of_it(
    tmp_path: Path, name: str, how: str
) -> None:
    pytest.importorskip(name)
    if name == "torch":
        pytest.importorskip("tensorboard")
    if how == "variable":
        document = train(tmp_path, WRITERS[name], TRAINJOB_PROGRESS_ADOPT="1")
    else:
        beginning = "from trainjob_progress import adopt\n"
        lines = WRITERS[name].strip().split("\n")
        document = train(tmp_path, "\n".join([beginning, lines[0], "adopt()", *lines[1:]]))
    validation = "val.loss" if name == "wandb" else "val/loss"
    assert document["step"] == 30
    assert document["epoch"] == 3
    assert document["metrics"] == {"loss": pytest.approx(1 / 30), validation: 0.5}


KATIB = ROOT / "tests/vectors/katib-api.proto"  # kubeflow/katib 33c8ff4, pkg/apis/manager/v1beta1/api.proto


@contextmanager
def db_manager(
    directory: Path, certificate: tuple[bytes, bytes] | None
) -> Iterator[tuple[int, list[Any], list[Any]]]:
    """A server made of Katib's own descriptors: its port, the requests it took, and their metadata."""
    grpc = pytest.importorskip("grpc")
    protoc = pytest.importorskip("grpc_tools.protoc")
    options = [f"-I{KATIB.parent}", f"--python_out={directory}", f"--grpc_python_out={directory}", KATIB.name]
    assert protoc.main(["", *options]) == 0
    sys.path.insert(0, str(directory))
    try:
        messages, services = import_module("katib_api_pb2"), import_module("katib_api_pb2_grpc")
    finally:
        sys.path.remove(str(directory))
    requests: list[Any] = []
    metadata: list[Any] = []

    class Servicer(services.DBManagerServicer):  # type: ignore[misc,name-defined]
        def ReportObservationLog(self, request: Any, context: Any) -> Any:
            requests.append(request)
            metadata.append(dict(context.invocation_metadata()))
            return messages.ReportObservationLogReply()

    server = grpc.server(ThreadPoolExecutor(2))
    services.add_DBManagerServicer_to_server(Servicer(), server)
    if certificate is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([certificate]))
    server.start()
    try:
        yield port, requests, metadata
    finally:
        server.stop(0)
        sys.modules.pop("katib_api_pb2"), sys.modules.pop("katib_api_pb2_grpc")


TRIAL = """
from trainjob_progress import report_metrics

for accuracy in (0.25, 0.5, 0.75):
    report_metrics({"accuracy": accuracy, "note": "a text", "system/gpu_0_power_usage_watts": 1}, timeout=3)
"""


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_trial_feeds_katibs_db_manager_without_a_sidecar(tmp_path: Path, is_secure: bool) -> None:
    environ = {"TRAINJOB_PROGRESS_SINKS": "katib", "KATIB_TRIAL_NAME": "random-4k2x"}
    certificate = None
    if is_secure:
        certificate = make_certificate(tmp_path)
        (tmp_path / "token").write_text("secret-token\n")
        environ |= {
            "TRAINJOB_PROGRESS_KATIB_CA_CERT": str(tmp_path / "tls.crt"),
            "TRAINJOB_PROGRESS_KATIB_TOKEN": str(tmp_path / "token"),
        }
    with db_manager(tmp_path, certificate) as (port, requests, metadata):
        train(tmp_path, TRIAL, TRAINJOB_PROGRESS_KATIB_ADDRESS=f"localhost:{port}", **environ)
    logs = [each for request in requests for each in request.observation_log.metric_logs]
    assert {request.trial_name for request in requests} == {"random-4k2x"}
    assert [(each.metric.name, each.metric.value) for each in logs] == [
        ("accuracy", value) for value in ("0.25", "0.5", "0.75")
    ]
    times = [datetime.fromisoformat(each.time_stamp) for each in logs]
    assert times == sorted(times)
    assert {each.get("authorization") for each in metadata} == {"Bearer secret-token" if is_secure else None}


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({}, "KATIB_TRIAL_NAME"),
        ({"KATIB_TRIAL_NAME": "a", "TRAINJOB_PROGRESS_KATIB_TOKEN": "/t"}, "TRAINJOB_PROGRESS_KATIB_CA_CERT"),
    ],
)
def test_katib_is_left_out_where_the_trial_is_not_known_or_a_token_would_be_sent_in_the_clear(
    environ: dict[str, str], why: str
) -> None:
    pytest.importorskip("grpc")
    katib = import_module("trainjob_progress.trackers.katib")
    with pytest.raises((LookupError, ValueError), match=why):
        katib.find(environ)


def make_certificate(directory: Path) -> tuple[bytes, bytes]:
    """Key and certificate of localhost."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", "tls.key", "-out", "tls.crt"],
        cwd=directory, check=True, capture_output=True,
    )  # fmt: skip
    return (directory / "tls.key").read_bytes(), (directory / "tls.crt").read_bytes()


def test_opentelemetrys_descriptors_read_what_the_server_pushes() -> None:
    """The body that tests/service/test_job_metrics_otlp.py compares. In OTLP's JSON ids are hexadecimal."""
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    from google.protobuf import json_format

    text = (ROOT / "tests/vectors/otlp-metrics.json").read_text()
    body = re.sub(
        r'("(?:traceId|spanId)": ?")([0-9a-f]+)',
        lambda found: found[1] + b64encode(bytes.fromhex(found[2])).decode(),
        text,
    )
    request = json_format.Parse(body, service.ExportMetricsServiceRequest())
    metrics = {each.name: each for each in request.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = metrics["trainjob_progress_ratio"].gauge.data_points
    assert point.as_double == 0.42
    assert {each.key: each.value.string_value for each in point.attributes}["kubeflow.job.name"] == "bert"
    assert point.exemplars[0].trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
    reported = [each.as_double for each in metrics["trainjob_reported_value"].gauge.data_points]
    assert [repr(value) for value in reported] == ["1.25", "nan"]
    (attempts,) = metrics["trainjob_attempts_total"].sum.data_points
    assert metrics["trainjob_attempts_total"].sum.is_monotonic
    assert attempts.start_time_unix_nano < attempts.time_unix_nano
