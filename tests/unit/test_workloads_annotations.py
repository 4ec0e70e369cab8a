"""Where a job reports and how often to probe it: annotations and the pod's literal variables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from tests.workload_objects import TORCH, described, pod, trainjob
from visibility_api.jobs.job import StopRule, Thresholds
from visibility_api.workloads.annotations import (
    KEYS,
    PREFIX,
    SOURCES,
    parse_port,
    path_fault,
    read_annotations,
)
from visibility_api.workloads.declarations import (
    LOG_VARIABLE,
    PATH_VARIABLES,
    PORT_VARIABLE,
    Declarations,
    read_declarations,
)
from visibility_api.workloads.objects import Container

ODH = "trainer.opendatahub.io/"
OPT_IN = {ODH + "progression-tracking": "true"}
KEP = "trainer.kubeflow.org/trainjob-monitoring-"
DEFAULT = "/tmp/trainjob-progress.json"
NO_PORTS = (
    *("0", "65536", "99999", "100000", "-1", "+80", "8080 ", " 8080", "80.0", "0x50", "http", "", "8_0"),
    *("\u0668\u0660", "\u00b2", "80\n", "80:443", "80@169.254.169.254", "80\0"),
    pytest.param("9" * 1_000_000, id="a million digits"),
)
NO_PATHS = (
    *("$(HOME)/p.json", "/data/$(JOB_NAME)/p.json", "/$$(HOME)/p", "relative", "", "/a\0b"),
    *("/proc/self/environ", "/var/run/secrets/kubernetes.io/serviceaccount/token"),
    *("/run/../var/run/secrets/x", "//run/secrets", pytest.param("/" + "a" * 2000, id="long")),
)


def container(*env: dict[str, Any], **variables: str) -> Container:
    """Read as JSON, then packed and unpacked as the inventory does."""
    named = [{"name": name, "value": value} for name, value in variables.items()]
    read = msgspec.json.decode(msgspec.json.encode({"name": "node", "env": [*env, *named]}), type=Container)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(read), type=Container)
    assert msgspec.msgpack.encode(kept) == msgspec.msgpack.encode(read)
    return kept


def declared(
    annotations: dict[str, str] | None = None, *env: dict[str, Any], **variables: str
) -> Declarations:
    return read_declarations(container(*env, **variables), read_annotations(annotations))


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_can_be_wished_for(source: str) -> None:
    assert read_annotations({PREFIX + "source": source}).hints.source == source


def test_nothing_declared_means_the_default_file_and_no_port() -> None:
    assert declared() == Declarations(path=DEFAULT, port=None, sources=())


@pytest.mark.parametrize("text", ["1", "28080", "65535"])
def test_the_port_annotation_names_the_port(text: str) -> None:
    found = declared({PREFIX + "port": text})
    assert found.port == int(text)
    assert found.sources == (("http", f"annotation {PREFIX}port"),)


@pytest.mark.parametrize("text", NO_PORTS)
def test_a_port_that_is_none_is_ignored_and_named_without_its_text(text: str) -> None:
    annotations = read_annotations({PREFIX + "port": text})
    assert (annotations.port, annotations.port_from) == (None, "")
    assert annotations.hints.faults == (
        f"Annotation {PREFIX}port is ignored: it must be a port number, 1 to 65535.",
    )


def test_open_data_hubs_opt_in_means_its_port_and_its_interval() -> None:
    assert declared(OPT_IN).port == 28080
    assert declared(OPT_IN).sources == (("http", f"annotation {ODH}progression-tracking"),)
    tuned = OPT_IN | {ODH + "metrics-port": "9000", ODH + "metrics-poll-interval": "45"}
    assert declared(tuned).port == 9000
    assert declared(tuned).sources == (("http", f"annotation {ODH}metrics-port"),)
    assert read_annotations(tuned).hints.interval_s == 45


@pytest.mark.parametrize("value", ["True", "false", "1", "yes", ""])
def test_without_the_opt_in_word_for_word_open_data_hubs_annotations_mean_nothing(value: str) -> None:
    given = {ODH + "progression-tracking": value, ODH + "metrics-port": "9000"}
    given[ODH + "metrics-poll-interval"] = "7s"
    annotations = read_annotations(given)
    assert (annotations.port, annotations.hints.interval_s, annotations.hints.faults) == (None, None, ())


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("1m", 60), ("1s", 5), ("0", 5), ("1h", 300)]
)
def test_a_foreign_interval_is_clamped_as_its_own_controller_does(text: str, seconds: float) -> None:
    assert read_annotations(OPT_IN | {ODH + "metrics-poll-interval": text}).hints.interval_s == seconds
    assert read_annotations({KEP + "interval": text}).hints.interval_s == seconds


def test_a_foreign_annotation_that_makes_no_sense_is_named_by_its_own_name() -> None:
    annotations = read_annotations(
        OPT_IN | {ODH + "metrics-port": "many", ODH + "metrics-poll-interval": "often"}
    )
    assert (annotations.port, annotations.hints.interval_s) == (28080, None)
    assert annotations.hints.faults == (
        f'Annotation {ODH}metrics-poll-interval is ignored: it must be a duration such as "30s" or "2m".',
        f"Annotation {ODH}metrics-port is ignored: it must be a port number, 1 to 65535.",
    )


def test_our_annotations_take_precedence_over_open_data_hubs_and_those_over_the_keps() -> None:
    kep = {KEP + "port": "3", KEP + "interval": "60s"}
    odh = OPT_IN | {ODH + "metrics-port": "2", ODH + "metrics-poll-interval": "50s"}
    ours = {PREFIX + "port": "1", PREFIX + "interval": "2s"}
    found = [read_annotations(given) for given in (kep, odh | kep, ours | odh | kep)]
    assert [(w.port, w.hints.interval_s) for w in found] == [(3, 60), (2, 50), (1, 2)]


def test_a_port_in_the_environment_is_used_where_no_annotation_names_one() -> None:
    found = declared(None, TRAINJOB_PROGRESS_PORT="9000")
    assert found.port == 9000
    assert found.sources == (("http", "environment variable TRAINJOB_PROGRESS_PORT"),)
    assert declared({PREFIX + "port": "9001"}, TRAINJOB_PROGRESS_PORT="9000").port == 9001
    assert declared(None, TRAINJOB_PROGRESS_PORT="no") == declared()


def test_the_file_is_the_annotated_one_then_our_variable_then_the_aliases() -> None:
    argo = {"ARGO_PROGRESS_FILE": "/argo/progress"}
    kep = argo | {"KUBEFLOW_TRAINER_STATUS_FILE": "/var/kubeflow/trainer/status/status.json"}
    ours = kep | {"TRAINJOB_PROGRESS_FILE": "/data/p.json"}
    annotated = {PREFIX + "path": "/mnt/p.json"}
    found = [
        declared(None, **argo),
        declared(None, **kep),
        declared(None, **ours),
        declared(annotated, **ours),
    ]
    assert [(d.path, d.sources) for d in found] == [
        ("/argo/progress", (("exec", "environment variable ARGO_PROGRESS_FILE"),)),
        (
            "/var/kubeflow/trainer/status/status.json",
            (("exec", "environment variable KUBEFLOW_TRAINER_STATUS_FILE"),),
        ),
        ("/data/p.json", (("exec", "environment variable TRAINJOB_PROGRESS_FILE"),)),
        ("/mnt/p.json", (("exec", f"annotation {PREFIX}path"),)),
    ]


def test_annotations_come_before_variables_and_a_port_before_a_file_and_a_log() -> None:
    variables = {"TRAINJOB_PROGRESS_FILE": "/p", "TRAINJOB_PROGRESS_PORT": "1", "TRAINJOB_PROGRESS_LOG": "1"}
    assert [source for source, _ in declared(None, **variables).sources] == ["http", "exec", "logs"]
    assert declared({PREFIX + "path": "/q"}, **variables).sources[0] == ("exec", f"annotation {PREFIX}path")


@pytest.mark.parametrize("value", ["0", ""])
def test_a_log_switched_off_is_not_declared(value: str) -> None:
    assert declared(None, TRAINJOB_PROGRESS_LOG=value).sources == ()


@pytest.mark.parametrize("path", NO_PATHS)
@pytest.mark.parametrize(
    "name", ["TRAINJOB_PROGRESS_FILE", "KUBEFLOW_TRAINER_STATUS_FILE", "ARGO_PROGRESS_FILE"]
)
def test_a_path_that_cannot_be_known_or_must_not_be_read_is_not_taken(name: str, path: str) -> None:
    assert declared(None, **{name: path}) == declared()


def test_a_dollar_sign_that_the_kubelet_leaves_alone_is_part_of_the_path() -> None:
    assert declared(None, TRAINJOB_PROGRESS_FILE="/data/$x").path == "/data/$x"


def test_of_a_variable_given_twice_the_last_counts_even_when_its_value_is_elsewhere() -> None:
    first = {"name": "TRAINJOB_PROGRESS_FILE", "value": "/first"}
    assert declared(None, first, TRAINJOB_PROGRESS_FILE="/last").path == "/last"
    secret = {"name": "TRAINJOB_PROGRESS_FILE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert declared(None, first, secret) == declared()


def test_of_very_many_variables_of_ours_the_last_are_kept() -> None:
    """30,000 fit a pod, and took 25 ms of the event loop with each of its changes."""
    many = [{"name": "TRAINJOB_PROGRESS_FILE", "value": f"/{number}"} for number in range(1000)]
    container = msgspec.json.decode(msgspec.json.encode({"env": many}), type=Container)
    assert [each.text for each in container.env or ()] == [f"/{number}" for number in range(744, 1000)]


@pytest.mark.parametrize("value", [5, True, ["/p"], {"a": "/p"}])
def test_a_value_that_is_no_text_is_none_and_harms_no_other(value: Any) -> None:
    no_text = {"name": "TRAINJOB_PROGRESS_PORT", "value": value}
    assert declared(None, no_text, TRAINJOB_PROGRESS_FILE="/p") == declared(None, TRAINJOB_PROGRESS_FILE="/p")


def test_jobs_that_declare_the_same_share_one_value_in_memory() -> None:
    one, other = (declared(None, TRAINJOB_PROGRESS_FILE=path) for path in ("/one", "/other"))
    assert one.sources is other.sources


ANNOTATIONS = st.sampled_from(
    [
        *(PREFIX + key for key in ("source", "interval", "path", "port", "container", "other")),
        *(ODH + key for key in ("progression-tracking", "metrics-port", "metrics-poll-interval")),
        *(KEP + key for key in ("port", "interval")),
    ]
)
VALUES = st.text() | st.from_regex(r"\d{0,7}[smh]?", fullmatch=True) | st.just("true")


@given(st.dictionaries(ANNOTATIONS, VALUES), VALUES)
def test_any_annotations_give_usable_settings_and_faults_that_quote_none_of_them(
    raw: dict[str, str], variable: str
) -> None:
    annotations = read_annotations(raw)
    found = read_declarations(container(TRAINJOB_PROGRESS_PORT=variable), annotations)
    assert found.port is None or 1 <= found.port <= 65535
    assert found.path.startswith("/")
    assert annotations.hints.interval_s is None or 1 <= annotations.hints.interval_s <= 3600
    assert all(fault.startswith("Annotation ") for fault in annotations.hints.faults)
    assert (found.port is not None) == any(source == "http" for source, _ in found.sources)


@given(st.text() | st.integers().map(str))
def test_a_port_is_a_decimal_number_in_range_or_nothing(text: str) -> None:
    port = parse_port(text)
    assert port is None or (1 <= port <= 65535 and int(text) == port)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", False),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", False),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", False),
    ],
)
def test_a_trace_is_taken_from_its_annotation_if_it_is_one(text: str, is_valid: bool) -> None:
    hints = read_annotations({"opentelemetry.io/traceparent": text}).hints
    assert (hints.traceparent, hints.faults) == (text if is_valid else None, ())


@pytest.mark.parametrize(
    ("key", "text", "threshold"),
    [
        ("stalled-after", "10m", Thresholds(stalled_after_s=600)),
        ("stalled-after", "off", Thresholds(stalled_after_s=math.inf)),
        ("goodput-below", "50%", Thresholds(goodput_below=0.5)),
        ("goodput-below", "12.5%/24h", Thresholds(goodput_below=0.125, goodput_window_s=86400)),
        ("goodput-below", "off", Thresholds()),
        ("should-stop", "median", Thresholds(stop_rules=(StopRule(least=4),))),
        (
            "should-stop",
            "val loss > 2.5, accuracy<-.5@10 ,median@7",
            Thresholds(
                stop_rules=(
                    StopRule(metric="val loss", comparison=">", value=2.5),
                    StopRule(metric="accuracy", comparison="<", value=-0.5, least=10),
                    StopRule(least=7),
                )
            ),
        ),
        ("should-stop", "off", Thresholds()),
        ("should-stop-label", "example.com/sweep", Thresholds(stop_label="example.com/sweep")),
        ("at-risk-after", "1h", Thresholds(at_risk_after_s=3600)),
        ("idle-after", "30m", Thresholds(idle_after_s=1800)),
        ("at-risk-after", "off", Thresholds(at_risk_after_s=math.inf)),
        ("diverged-above", "20", Thresholds(diverged_above=20)),
        ("diverged-above", "-1.5e2", Thresholds(diverged_above=-150)),
        ("diverged-above", "off", Thresholds(diverged_above=math.inf)),
        ("straggling-above", "1.5", Thresholds(straggling_above=1.5)),
        ("straggling-above", "off", Thresholds(straggling_above=math.inf)),
        ("plateau-metric", "val/f1", Thresholds(plateau_metric="val/f1")),
        ("plateau-better", "max", Thresholds(plateau_better="max")),
        ("plateau-after", "20", Thresholds(plateau_values=20)),
        ("plateau-after", "2h", Thresholds(plateau_after_s=7200)),
        ("plateau-after", "off", Thresholds(plateau_after_s=math.inf)),
    ],
)
def test_a_threshold_can_be_named(key: str, text: str, threshold: Thresholds) -> None:
    hints = read_annotations({PREFIX + key: text}).hints
    assert (hints.thresholds, hints.faults) == (threshold, ())


STOP_RULES = 'it must be up to 4 rules such as "median", "loss>2.5" or "accuracy<0.5@10", with commas between'


@pytest.mark.parametrize(
    ("key", "text", "accepted"),
    [
        ("goodput-below", "0.5", 'it must be a percentage such as "50%", "50%/1h" or "50%/24h", or "off"'),
        ("goodput-below", "50%/2h", 'it must be a percentage such as "50%", "50%/1h" or "50%/24h", or "off"'),
        *(
            ("should-stop", text, f'{STOP_RULES}, or "off"')
            for text in ("", "median,", "loss>x", "loss>nan", "loss>1@0", "loss")
        ),
        *(
            ("should-stop", text, f'{STOP_RULES}, or "off"')
            for text in ("a\x1b>1", "median," * 4 + "median", "a>1," * 200)
        ),
        ("should-stop-label", "a b", "it must be the key of a label"),
        ("idle-after", "30s", 'it must be a duration such as "30m", from 1m to 168h, or "off"'),
        ("at-risk-after", "1s", 'it must be a duration such as "1h", from 10s to 168h, or "off"'),
        ("stalled-after", "9s", 'it must be a duration such as "10m", from 10s to 168h, or "off"'),
        ("stalled-after", "never", 'it must be a duration such as "10m", from 10s to 168h, or "off"'),
        ("diverged-above", "nan", 'it must be a number such as "20", or "off"'),
        ("diverged-above", "9" * 99, 'it must be a number such as "20", or "off"'),
        ("straggling-above", "1", 'it must be a factor such as "2", 1.1 to 1000, or "off"'),
        ("straggling-above", "x", 'it must be a factor such as "2", 1.1 to 1000, or "off"'),
        ("plateau-metric", "", "it must be a metric's name, 64 characters at most"),
        ("plateau-metric", "a\x1b[31m", "it must be a metric's name, 64 characters at most"),
        ("plateau-better", "more", 'it must be "min" or "max"'),
        (
            "plateau-after",
            "1",
            'it must be 2 to 100000 values, a duration such as "30m" (1m to 720h), or "off"',
        ),
        (
            "plateau-after",
            "1s",
            'it must be 2 to 100000 values, a duration such as "30m" (1m to 720h), or "off"',
        ),
    ],
)
def test_a_threshold_that_is_none_is_ignored_and_named_without_its_text(
    key: str, text: str, accepted: str
) -> None:
    hints = read_annotations({PREFIX + key: text}).hints
    assert hints.thresholds == Thresholds()
    assert hints.faults == (f"Annotation {PREFIX}{key} is ignored: {accepted}.",)


def test_every_annotation_source_and_variable_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/annotations.md").read_text()
    words = (*KEYS, *SOURCES, *PATH_VARIABLES, PORT_VARIABLE, LOG_VARIABLE)
    assert [word for word in words if f"`{word}`" not in page] == []


PROBING = st.sampled_from([PREFIX + key for key in ("source", "interval", "path", "port", "container")])


@given(st.dictionaries(PROBING, st.text(max_size=40), max_size=4))
def test_whatever_the_annotations_there_is_a_job_and_a_path_that_may_be_read(said: dict[str, str]) -> None:
    job = described(trainjob(annotations=said), TORCH, [pod()])
    assert job.rank0 is not None
    assert path_fault(job.rank0.progress_path) == ""
    assert job.hints.interval_s is None or 1.0 <= job.hints.interval_s <= 3600.0
