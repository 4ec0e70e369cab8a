"""The panels of each dashboard, and what each asks Prometheus for.

Queries of jobs take `max by` their labels, so that what two replicas have shown is one series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from visibility_api.job_metrics.families import JOB_LABELS


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `empty`: when a healthy system has no data for it; else it always has."""

    title: str
    kind: Literal["stat", "lines", "stacked", "states", "table"]
    queries: Sequence[tuple[str, str]]  # with their legends; in a table, the names of columns
    _: KW_ONLY
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
_UTILISATION = f"DCGM_FI_DEV_GPU_UTIL * on (namespace, pod) group_left (node) {_PODS}"
_JOBS_BY_QUEUE = f"{_of('trainjob_info', by='queue, node_pool')} * {_RUNNING}"
_FAULTY = _of("trainjob_status_condition", f'condition=~"{FAULTS}"', by="condition")
_GOODPUT = f"sum({_PRODUCTIVE} * on ({J}) {_WEIGHT}) / sum({_NOT_QUEUED} * on ({J}) {_WEIGHT})"
_NOT_MOVING = "the run does not advance"

FLEET = Dashboard(
    uid="trainjob-fleet",
    title="Training jobs",
    variables=(("namespace", "label_values(trainjob_info, namespace)"),),
    link="#/",
    panels=(
        Panel("Jobs that run", "stat", [(f"sum({_IS_RUNNING})", "")]),
        Panel("Accelerators in use", "stat", [(f"sum({_ACCELERATORS} * {_RUNNING}) or vector(0)", "")]),
        Panel(
            "Accelerators that stand still", "stat",
            [(f"sum({_ACCELERATORS} * {_STALLED}) or vector(0)", "")],
        ),
        Panel(
            "Goodput of the last hour", "stat", [(_GOODPUT, "")], unit="percentunit",
            text=f"Time of accelerators in which steps were done, of all but the time in queues. {_WEIGHED}",
        ),
        Panel(
            "Jobs by phase", "stacked",
            [(f"sum by (phase) ({_of('trainjob_status_phase', by='phase')})", "{{phase}}")],
        ),
        Panel(
            "What accelerators do", "stacked",
            [(f"sum by (activity) ({_ACTIVITIES} * on ({J}) group_left () {_WEIGHT})", "{{activity}}")],
            text=f"Accelerators by activity (docs/goodput.md). {_WEIGHED}",
        ),
        Panel(
            "Accelerators by namespace", "stacked",
            [(f"sum by (namespace) ({_ACCELERATORS} * {_RUNNING})", "{{namespace}}")],
            empty="no job with accelerators runs",
        ),
        Panel(
            "Jobs by queue and node pool", "stacked",
            [(f"sum by (queue, node_pool) ({_JOBS_BY_QUEUE})", "{{queue}} {{node_pool}}")],
            text="Jobs that run, by their Kueue queue and the node pool of rank 0, where they name one.",
        ),
        Panel(
            "Jobs with something wrong", "lines", [(f"sum by (condition) ({_FAULTY})", "{{condition}}")],
            text="Jobs whose condition is True (docs/troubleshooting.md).", empty="no job was evaluated yet",
        ),
        Panel(
            "Jobs that run", "table",
            [
                (f"{_of('trainjob_progress_ratio')} * {_RUNNING}", "Progress"),
                (_of("trainjob_steps_per_second"), "Steps a second"),
                (f"{_of('trainjob_estimated_completion_timestamp_seconds')} - time()", "Seconds left"),
                (f"{_ACCELERATORS} * {_RUNNING}", "Accelerators"),
                (f"{_PRODUCTIVE} / ({_NOT_QUEUED} > 0)", "Goodput"),
            ],
            empty="no job reports",
        ),
    ),
)  # fmt: skip


def _job(metric: str, *, by: str = "") -> str:
    return _of(metric, by=by, chosen=_S)


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
            "Progress", "stat", [(_job("trainjob_progress_ratio"), "")], unit="percentunit",
            empty="the run reports no planned end",
        ),
        Panel(
            "Time left", "stat",
            [(f"{_job('trainjob_estimated_completion_timestamp_seconds')} - time()", "")],
            unit="s", empty=f"{_NOT_MOVING}, or has no planned end",
        ),
        Panel(
            "Since the last report", "stat",
            [(f"time() - {_job('trainjob_last_report_timestamp_seconds')}", "")],
            unit="s", empty="nothing was reported",
        ),
        Panel("Attempts", "stat", [(_job("trainjob_attempts_total"), "")], empty="none has begun"),
        Panel(
            "Step", "lines", [(_job("trainjob_step"), "step"), (_job("trainjob_planned_steps"), "planned")],
            empty="the run reports no steps",
        ),
        Panel(
            "Steps a second", "lines", [(_job("trainjob_steps_per_second"), "steps a second")],
            empty=_NOT_MOVING,
        ),
        Panel(
            "What the run reports", "lines", [(_job("trainjob_reported_value", by="metric"), "{{metric}}")],
            empty="the run reports none of the metrics of --job-metric-names",
        ),
        Panel(
            "What its time is spent on", "stacked",
            [(_rate("", by="activity", over="$__rate_interval", chosen=_S), "{{activity}}")],
            unit="percentunit",
        ),
        Panel("Phase", "states", [(f"{_job('trainjob_status_phase', by='phase')} == 1", "{{phase}}")]),
        Panel("Conditions", "states", [(_job("trainjob_status_condition", by="condition"), "{{condition}}")]),
        Panel(
            "Since the last checkpoint", "lines",
            [(f"time() - {_job('trainjob_checkpoint_timestamp_seconds')}", "since the last one")], unit="s",
            empty="the run does not tell of its checkpoints",
        ),
        Panel("Pods", "table", [(_PODS, "Pod")], empty="the job does not run"),
        Panel(
            "Utilisation of its GPUs", "lines",
            [(f"avg by (pod, node) ({_UTILISATION})", "{{pod}} on {{node}}")],
            unit="percent", empty="Prometheus does not scrape dcgm-exporter, or the job does not run",
        ),
    ),
)  # fmt: skip

_I = 'instance=~"$instance"'
_ENDS = "visibility_serving_certificate_expiration_timestamp_seconds"
_PUSHED = "every job pushes"


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
        Panel("Jobs served", "stat", [(f"max(visibility_jobs{{{_I}}})", "")]),
        Panel("Replica that owns the jobs", "stat", [(f"visibility_log_owner{{{_I}}} == 1", "{{instance}}")]),
        Panel("Days until the certificate ends", "stat", [(f"(min({_ENDS}{{{_I}}}) - time()) / 86400", "")]),
        Panel("Watches that are down", "stat", [(f"sum(visibility_watch_down{{{_I}}})", "")]),
        Panel(
            "Probes by outcome", "stacked",
            [(_total("visibility_probes_total", "source, outcome"), "{{source}} {{outcome}}")],
            unit="ops", empty=_PUSHED,
        ),
        Panel(
            "How long a probe takes, 99 %", "lines",
            [(_quantile("visibility_probe_duration_seconds", "source"), "{{source}}")],
            unit="s", empty=_PUSHED,
        ),
        Panel(
            "How late a probe begins, 99 %", "lines",
            [(_quantile("visibility_probe_lateness_seconds"), "late")], unit="s", empty=_PUSHED,
        ),
        Panel(
            "Pushes by outcome", "stacked", [(_total("visibility_pushes_total", "outcome"), "{{outcome}}")],
            unit="ops", empty="no job pushes",
        ),
        Panel(
            "Requests", "stacked", [(_total("apiserver_request_total", "verb, code"), "{{verb}} {{code}}")],
            unit="reqps",
        ),
        Panel(
            "How long a request takes, 99 %", "lines",
            [(_quantile("apiserver_request_duration_seconds", "verb"), "{{verb}}")], unit="s",
        ),
        Panel("Open watches", "lines", [(f"apiserver_longrunning_requests{{{_I}}}", "{{instance}}")]),
        Panel(
            "CPU", "lines", [(_total("process_cpu_seconds_total", "instance"), "{{instance}}")],
            unit="percentunit",
        ),
        Panel(
            "Memory", "lines", [(f"process_resident_memory_bytes{{{_I}}}", "{{instance}}")], unit="bytes"
        ),
        Panel(
            "State in the data directory", "lines", [(f"visibility_data_dir_bytes{{{_I}}}", "{{instance}}")],
            unit="bytes",
        ),
        Panel(
            "Objects that could not be read", "lines",
            [(_total("visibility_objects_unread_total", "collection, reason"), "{{collection}}")],
            unit="ops", empty="all could",
        ),
        Panel(
            "Written to the cluster", "lines",
            [
                (_total("visibility_write_backs_total", "outcome"), "status {{outcome}}"),
                (_total("visibility_events_total", "outcome"), "Events {{outcome}}"),
            ],
            unit="ops", empty="neither --write-back nor --events is on",
        ),
    ),
)  # fmt: skip

DASHBOARDS = (FLEET, JOB, SERVER)
