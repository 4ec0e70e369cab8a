"""The alerts of deploy/components/alerts, by promtool where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from visibility_api.telemetry import Metrics

RULES = Path(__file__).parents[2] / "deploy/components/alerts/rules.yaml"
DAY = 86400
ENDS = "visibility_serving_certificate_expiration_timestamp_seconds"
LASTS = "visibility_serving_certificate_lifetime_seconds"


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    return found


def test_alerts_read_metrics_that_the_server_has() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    known = {sample.name.removesuffix("_total") for sample in registry.collect()}
    rules = [rule for group in groups() for rule in group["rules"]]
    read = {name for rule in rules for name in re.findall(r"visibility_\w+", rule["expr"])}
    assert read
    assert {name.removesuffix("_total") for name in read} <= known


@pytest.mark.parametrize(
    ("life_s", "left_s", "fires"),
    [
        (90 * DAY, 30 * DAY, False),  # then it is renewed
        (90 * DAY, 20 * DAY, True),
        (10 * DAY, 4 * DAY, False),
        (10 * DAY, 2 * DAY, True),
        (365 * DAY, 30 * DAY, False),
        (365 * DAY, 20 * DAY, True),
    ],
)
def test_a_certificate_that_was_not_renewed_in_time_fires(
    tmp_path: Path, life_s: int, left_s: int, fires: bool
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    hours = 2  # promtool's clock begins at 0
    values = {ENDS: left_s + hours * 3600, LASTS: life_s}
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f'{name}{{instance="a"}}', "values": f"{value}x{hours * 60}"}
            for name, value in values.items()
        ],
        "promql_expr_test": [],
        "alert_rule_test": [{"eval_time": f"{hours}h", "alertname": "TrainjobVisibilityCertificateEnds"}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}))
    told = subprocess.run(
        [promtool, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    # It expects no alert, so it fails where there is one.
    assert ("TrainjobVisibilityCertificateEnds" in told.stdout + told.stderr) is fires, told
