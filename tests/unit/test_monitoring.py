"""Dashboards and the table of metrics: they are those of the code, and name only what there is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry

from monitoring.__main__ import dashboard, generated
from monitoring.panels import DASHBOARDS
from visibility_api.app.request_metrics import RequestMetrics
from visibility_api.job_metrics.families import FAMILIES, JOB_LABELS
from visibility_api.telemetry import Metrics

LOADED = {each.uid: json.loads(dashboard(each)) for each in DASHBOARDS}
OF_LIBRARIES = {"process_cpu_seconds", "process_resident_memory_bytes", "DCGM_FI_DEV_GPU_UTIL"}


def test_what_is_generated_is_up_to_date() -> None:
    """`make monitoring` writes it."""
    assert {path.name for path, text in generated().items() if path.read_text() != text} == set()


@pytest.mark.parametrize("uid", LOADED)
def test_a_dashboard_is_one_of_grafanas_and_its_panels_lie_beside_one_another(uid: str) -> None:
    loaded = LOADED[uid]
    assert json.loads(json.dumps(Dashboard.from_json(loaded), cls=JSONEncoder)) == loaded
    cells = [
        (x, y)
        for panel in loaded["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("uid", LOADED)
def test_a_panel_names_metrics_and_variables_that_there_are(uid: str) -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    RequestMetrics(registry)
    known = {family.name for family in registry.collect()} | OF_LIBRARIES
    known |= {each.name.removesuffix("_total") for each in FAMILIES}
    text = json.dumps(LOADED[uid]["panels"])
    named = set(re.findall(r"\b(?:trainjob|visibility|apiserver|process|DCGM)_\w+", text))
    assert named
    assert {re.sub("_(total|bucket)$", "", each) for each in named} <= known
    variables = {each["name"] for each in LOADED[uid]["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(LOADED[uid])))
    assert used <= variables | {"__rate_interval", "__all", "__data"}


def test_a_row_of_the_fleet_leads_to_the_dashboard_of_that_job() -> None:
    (link,) = [
        link
        for panel in LOADED["trainjob-fleet"]["panels"]
        for link in panel["fieldConfig"]["defaults"].get("links", ())
    ]
    variables: list[dict[str, Any]] = LOADED["trainjob-job"]["templating"]["list"]
    assert link["url"].startswith("/d/trainjob-job?")
    assert (
        set(re.findall(r"var-(\w+)=", link["url"])) == set(JOB_LABELS) <= {each["name"] for each in variables}
    )
