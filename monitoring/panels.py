"""The panels of each dashboard, and what each asks Prometheus for.

Queries of jobs take `max by` their labels, so that what two replicas have shown is one series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visibility_api.job_metrics.families import JOB_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `empty`: when a healthy system has no data for it; else it always has."""

    title: str
    kind: Literal["stat", "lines", "stacked", "states", "table"] = "lines"
    queries: Sequence[tuple[str, str]]  # with their legends; in a table, the names of columns
    unit: str = "short"
    text: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """`variables`: names, with the queries of their values. Those of one job take one value each."""

    uid: str
    title: str
    variables: Sequence[tuple[str, str]]
    is_of_one: bool = False
    link: str  # into our page, after its address
    panels: Sequence[Panel]


J = ", ".join(JOB_LABELS)
_F = 'namespace=~"$namespace"'
_S = 'namespace="$namespace",kind="$kind",trainjob="$trainjob"'
FAULTS = "Stalled|Diverged|NoProgress|Straggling|Plateaued|AtRisk|LowGoodput"


def _of(metric: str, more: str = "", *, by: str = "", chosen: str = _F) -> str:
    return f"max by ({J}{by and f', {by}'}) ({metric}{{{chosen}{more and f',{more}'}}})"


def _rate(more: str, *, by: str = "", over: str = "1h", chosen: str = _F) -> str:
    series = f"trainjob_time_seconds_total{{{chosen}{more and f',{more}'}}}"
    return f"sum by ({J}{by and f', {by}'}) (rate({series}[{over}]))"


_IS_RUNNING = _of("trainjob_status_phase", 'phase="Running"')
_IS_STALLED = _of("trainjob_status_condition", 'condition="Stalled"')
_ACTIVITIES = _rate("", by="activity", over="$__rate_interval")
_PRODUCTIVE, _NOT_QUEUED = _rate('activity="Productive"'), _rate('activity!="Queued"')
_RUNNING = f"on ({J}) group_left () ({_IS_RUNNING} == 1)"
_ACCELERATORS = f"sum by ({J}) ({_of('trainjob_accelerators', by='resource')})"
_WEIGHT = f"({_ACCELERATORS} or {_of('trainjob_info')})"
_STALLED = f"on ({J}) ({_IS_STALLED} == 1)"
_WEIGHED = "A job without accelerators counts as one."
_PODS = f"max by (namespace, pod, node) (trainjob_pod_info{{{_S}}})"
_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
_NOT_MOVING = "the run does not advance"

FLEET = Dashboard(
    uid="trainjob-fleet",
    title="Training jobs",
    variables=(("namespace", "label_values(trainjob_info, namespace)"),),
    link="#/",
    panels=(
        Panel(
            title="Jobs that run",
            kind="stat",
            queries=((f"sum({_IS_RUNNING})", ""),),
        ),
        Panel(
            title="Accelerators in use",
            kind="stat",
            queries=((f"sum({_ACCELERATORS} * {_RUNNING}) or vector(0)", ""),),
        ),
        Panel(
            title="Accelerators that stand still",
            kind="stat",
            queries=((f"sum({_ACCELERATORS} * {_STALLED}) or vector(0)", ""),),
        ),
        Panel(
            title="Goodput of the last hour",
            kind="stat",
            unit="percentunit",
            queries=(
                (
                    f"sum({_PRODUCTIVE} * on ({J}) {_WEIGHT}) / sum({_NOT_QUEUED} * on ({J}) {_WEIGHT})",
                    "",
                ),
            ),
            text=f"Time of accelerators in which steps were done, of all but the time in queues. {_WEIGHED}",
        ),
        Panel(
            title="Jobs by phase",
            kind="stacked",
            queries=((f"sum by (phase) ({_of('trainjob_status_phase', by='phase')})", "{{phase}}"),),
        ),
        Panel(
            title="What accelerators do",
            kind="stacked",
            queries=(
                (f"sum by (activity) ({_ACTIVITIES} * on ({J}) group_left () {_WEIGHT})", "{{activity}}"),
            ),
            text=f"Accelerators by activity (docs/goodput.md). {_WEIGHED}",
        ),
        Panel(
            title="Accelerators by namespace",
            kind="stacked",
            queries=((f"sum by (namespace) ({_ACCELERATORS} * {_RUNNING})", "{{namespace}}"),),
            empty="no job with accelerators runs",
        ),
        Panel(
            title="Jobs by queue and node pool",
            kind="stacked",
            queries=(
                (
                    f"sum by (queue, node_pool) ({_of('trainjob_info', by='queue, node_pool')} * {_RUNNING})",
                    "{{queue}} {{node_pool}}",
                ),
            ),
            text="Jobs that run, by their Kueue queue and the node pool of rank 0, where they name one.",
        ),
        Panel(
            title="Jobs with something wrong",
            queries=(
                (
                    "sum by (condition) ("
                    + _of("trainjob_status_condition", f'condition=~"{FAULTS}"', by="condition")
                    + ")",
                    "{{condition}}",
                ),
            ),
            text="Jobs whose condition is True (docs/troubleshooting.md).",
            empty="no job was evaluated yet",
        ),
        Panel(
            title="Jobs that run",
            kind="table",
            queries=(
                (f"{_of('trainjob_progress_ratio')} * {_RUNNING}", "Progress"),
                (f"{_of('trainjob_steps_per_second')}", "Steps a second"),
                (f"{_of('trainjob_estimated_completion_timestamp_seconds')} - time()", "Seconds left"),
                (f"{_ACCELERATORS} * {_RUNNING}", "Accelerators"),
                (f"{_PRODUCTIVE} / ({_NOT_QUEUED} > 0)", "Goodput"),
            ),
            empty="no job reports",
        ),
    ),
)

JOB = Dashboard(
    uid="trainjob-job",
    title="One training job",
    variables=(
        ("namespace", "label_values(trainjob_info, namespace)"),
        ("kind", 'label_values(trainjob_info{namespace="$namespace"}, kind)'),
        ("trainjob", 'label_values(trainjob_info{namespace="$namespace",kind="$kind"}, trainjob)'),
        ("plural", f"label_values(trainjob_info{{{_S}}}, plural)"),
    ),
    is_of_one=True,
    link="#/${plural}/${namespace}/${trainjob}",
    panels=(
        Panel(
            title="Progress",
            kind="stat",
            unit="percentunit",
            queries=((_of("trainjob_progress_ratio", chosen=_S), ""),),
            empty="the run reports no planned end",
        ),
        Panel(
            title="Time left",
            kind="stat",
            unit="s",
            queries=((f"{_of('trainjob_estimated_completion_timestamp_seconds', chosen=_S)} - time()", ""),),
            empty=f"{_NOT_MOVING}, or has no planned end",
        ),
        Panel(
            title="Since the last report",
            kind="stat",
            unit="s",
            queries=((f"time() - {_of('trainjob_last_report_timestamp_seconds', chosen=_S)}", ""),),
            empty="nothing was reported",
        ),
        Panel(
            title="Attempts",
            kind="stat",
            queries=((_of("trainjob_attempts_total", chosen=_S), ""),),
            empty="none has begun",
        ),
        Panel(
            title="Step",
            queries=(
                (_of("trainjob_step", chosen=_S), "step"),
                (_of("trainjob_planned_steps", chosen=_S), "planned"),
            ),
            empty="the run reports no steps",
        ),
        Panel(
            title="Steps a second",
            queries=((_of("trainjob_steps_per_second", chosen=_S), "steps a second"),),
            empty=_NOT_MOVING,
        ),
        Panel(
            title="What the run reports",
            queries=((_of("trainjob_reported_value", by="metric", chosen=_S), "{{metric}}"),),
            empty="the run reports none of the metrics of --job-metric-names",
        ),
        Panel(
            title="What its time is spent on",
            kind="stacked",
            unit="percentunit",
            queries=(
                (
                    _rate("", by="activity", over="$__rate_interval", chosen=_S),
                    "{{activity}}",
                ),
            ),
        ),
        Panel(
            title="Phase",
            kind="states",
            queries=((f"{_of('trainjob_status_phase', by='phase', chosen=_S)} == 1", "{{phase}}"),),
        ),
        Panel(
            title="Conditions",
            kind="states",
            queries=((_of("trainjob_status_condition", by="condition", chosen=_S), "{{condition}}"),),
        ),
        Panel(
            title="Since the last checkpoint",
            unit="s",
            queries=(
                (f"time() - {_of('trainjob_checkpoint_timestamp_seconds', chosen=_S)}", "since the last one"),
            ),
            empty="the run does not tell of its checkpoints",
        ),
        Panel(
            title="Pods",
            kind="table",
            queries=((_PODS, "Pod"),),
            empty="the job does not run",
        ),
        Panel(
            title="Utilisation of its GPUs",
            unit="percent",
            queries=(
                (
                    f"avg by (pod, node) ({_UTILISATION} * on (namespace, pod) group_left (node) {_PODS})",
                    "{{pod}} on {{node}}",
                ),
            ),
            empty="Prometheus does not scrape dcgm-exporter, or the job does not run",
        ),
    ),
)

_I = 'instance=~"$instance"'
_ENDS = "visibility_serving_certificate_expiration_timestamp_seconds"


def _quantile(metric: str, by: str = "") -> str:
    buckets = f"rate({metric}_bucket{{{_I}}}[$__rate_interval])"
    return f"histogram_quantile(0.99, sum by (le{by and f', {by}'}) ({buckets}))"


def _total(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{_I}}}[$__rate_interval]))"


SERVER = Dashboard(
    uid="trainjob-server",
    title="Training job visibility server",
    variables=(("instance", "label_values(visibility_build_info, instance)"),),
    link="#/",
    panels=(
        Panel(
            title="Jobs served",
            kind="stat",
            queries=((f"max(visibility_jobs{{{_I}}})", ""),),
        ),
        Panel(
            title="Replica that owns the jobs",
            kind="stat",
            queries=((f"visibility_log_owner{{{_I}}} == 1", "{{instance}}"),),
        ),
        Panel(
            title="Days until the certificate ends",
            kind="stat",
            queries=(
                (
                    f"(min({_ENDS}{{{_I}}}) - time()) / 86400",
                    "",
                ),
            ),
        ),
        Panel(
            title="Watches that are down",
            kind="stat",
            queries=((f"sum(visibility_watch_down{{{_I}}})", ""),),
        ),
        Panel(title="Probes by outcome", kind="stacked", unit="ops",
              queries=((_total("visibility_probes_total", "source, outcome"), "{{source}} {{outcome}}"),),
              empty="every job pushes"),
        Panel(title="How long a probe takes, 99 %", unit="s",
              queries=((_quantile("visibility_probe_duration_seconds", "source"), "{{source}}"),),
              empty="every job pushes"),
        Panel(title="How late a probe begins, 99 %", unit="s",
              queries=((_quantile("visibility_probe_lateness_seconds"), "late"),),
              empty="every job pushes"),
        Panel(title="Pushes by outcome", kind="stacked", unit="ops",
              queries=((_total("visibility_pushes_total", "outcome"), "{{outcome}}"),),
              empty="no job pushes"),
        Panel(title="Requests", kind="stacked", unit="reqps",
              queries=((_total("apiserver_request_total", "verb, code"), "{{verb}} {{code}}"),)),
        Panel(title="How long a request takes, 99 %", unit="s",
              queries=((_quantile("apiserver_request_duration_seconds", "verb"), "{{verb}}"),)),
        Panel(title="Open watches",
              queries=((f"apiserver_longrunning_requests{{{_I}}}", "{{instance}}"),)),
        Panel(title="CPU", unit="percentunit",
              queries=((_total("process_cpu_seconds_total", "instance"), "{{instance}}"),)),
        Panel(title="Memory", unit="bytes",
              queries=((f"process_resident_memory_bytes{{{_I}}}", "{{instance}}"),)),
        Panel(title="State in the data directory", unit="bytes",
              queries=((f"visibility_data_dir_bytes{{{_I}}}", "{{instance}}"),)),
        Panel(title="Objects that could not be read", unit="ops",
              queries=((_total("visibility_objects_unread_total", "collection, reason"), "{{collection}}"),),
              empty="all could"),
        Panel(title="Written to the cluster", unit="ops",
              queries=((_total("visibility_write_backs_total", "outcome"), "status {{outcome}}"),
                       (_total("visibility_events_total", "outcome"), "Events {{outcome}}")),
              empty="neither --write-back nor --events is on"),
    ),
)  # fmt: skip

DASHBOARDS = (FLEET, JOB, SERVER)
