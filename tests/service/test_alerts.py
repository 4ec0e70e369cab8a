"""The rules of deploy/components, by promtool where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from visibility_api.job_metrics.families import FAMILIES, LEFT_OUT
from visibility_api.telemetry import Metrics

ROOT = Path(__file__).parents[2]
RULES = [ROOT / f"deploy/components/{each}/rules.yaml" for each in ("alerts", "job-monitoring")]
DAY = 86400


def groups() -> list[dict[str, Any]]:
    return [group for path in RULES for group in yaml.safe_load(path.read_text())["spec"]["groups"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"]]


def test_rules_read_metrics_that_the_server_has() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    known = {sample.name for sample in registry.collect()} | {each.name for each in (*FAMILIES, LEFT_OUT)}
    known |= {rule["record"] for rule in rules() if "record" in rule}
    pattern = re.compile(r"\b(?:visibility_|trainjob[_:]|namespace:)[\w:]+")
    read = {name for rule in rules() for name in pattern.findall(rule["expr"])}
    assert read
    assert {name.removesuffix("_total") for name in read} <= {name.removesuffix("_total") for name in known}


def test_the_docs_name_every_alert_and_every_recorded_metric() -> None:
    page = (ROOT / "docs/prometheus.md").read_text()
    assert [
        each for rule in rules() if f"`{(each := rule.get('alert') or rule['record'])}`" not in page
    ] == []


def promtool(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool here")
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    both: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # failures are told on stderr
    return subprocess.run([found, *arguments], cwd=directory, text=True, check=False, **both)


def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path) -> None:
    told = promtool(tmp_path, "check", "rules", "--lint-fatal", "rules.yaml")
    assert told.returncode == 0, told


JOB = 'namespace="a",kind="TrainJob",trainjob="x"'
SERIES = {
    "running": f'trainjob_status_phase{{{JOB},phase="Running"}}',
    "gpus": f'trainjob_accelerators{{{JOB},resource="nvidia.com/gpu"}}',
    "stalled": f'trainjob_status_condition{{{JOB},condition="Stalled"}}',
    "diverged": f'trainjob_status_condition{{{JOB},condition="Diverged"}}',
    **{
        each: f'trainjob_time_seconds_total{{{JOB},activity="{each}"}}'
        for each in ("Productive", "Stalled", "Queued")
    },
    "left out": 'trainjob_left_out_jobs{namespace="a"}',
    **{
        each: f'visibility_probes_total{{source="exec",outcome="{each}"}}'
        for each in ("Reported", "ExecForbidden", "NoProgressFile")
    },
    "stretch": 'visibility_probe_interval_stretch_ratio{instance="a"}',
    "build": 'visibility_build_info{version="1"}',
    "down": 'visibility_watch_down{collection="pods"}',
    "owner a": 'visibility_log_owner{instance="a"}',
    "owner b": 'visibility_log_owner{instance="b"}',
    "unread": 'visibility_objects_unread_total{collection="pods",reason="x"}',
    "ends": 'visibility_serving_certificate_expiration_timestamp_seconds{instance="a"}',
    "lasts": 'visibility_serving_certificate_lifetime_seconds{instance="a"}',
}
# A series and its values a minute; "NAME@A" is that of replica A.
CASES = (
    """
TrainjobAcceleratorsStalled 25m yes: running=1x99 gpus=8x99 stalled=0x10,1x99
TrainjobAcceleratorsStalled 15m no:  running=1x99 gpus=8x99 stalled=0x10,1x99
TrainjobAcceleratorsStalled 90m no:  running=1x99 gpus=8x99 stalled=0x99
TrainjobAcceleratorsStalled 90m no:  running=0x99 gpus=8x99 stalled=1x99
TrainjobAcceleratorsStalled 90m no:  running=1x99 stalled=1x99
TrainjobAcceleratorsStalled 30m yes: running@1=1x10,stale running@2=_x9,1x99 gpus@1=8x10,stale \
 gpus@2=_x9,8x99 stalled@1=1x10,stale stalled@2=_x9,1x99
TrainjobDiverged 10m yes: running=1x99 diverged=1x99
TrainjobDiverged 10m no:  running=0x99 diverged=1x99
TrainjobGoodputLow 150m yes: running=1x200 gpus=8x200 Productive=0+20x200 Stalled=0+40x200
TrainjobGoodputLow 150m yes: running=1x200 gpus=8x200 Stalled=0+60x200
TrainjobGoodputLow 150m no:  running=1x200 gpus=8x200 Productive=0+40x200 Stalled=0+20x200
TrainjobGoodputLow 150m no:  running=1x200 gpus=8x200 Queued=0+60x200
TrainjobGoodputLow 150m no:  running=1x200 Stalled=0+60x200
TrainjobMetricsLeftOut 20m yes: left_out=3x60
TrainjobVisibilityProbesFailing 30m yes: ExecForbidden=0+9x60 Reported=0+1x60
TrainjobVisibilityProbesFailing 30m no:  ExecForbidden=0+1x60 Reported=0+9x60
TrainjobVisibilityProbesFailing 30m no:  NoProgressFile=0+9x60
TrainjobVisibilityProbesFailing 30m no:  ExecForbidden=9x60
TrainjobVisibilityProbesLate 20m yes: stretch=3x60
TrainjobVisibilityServerDown 6m yes:
TrainjobVisibilityServerDown 6m no: build=1x60
TrainjobVisibilityWatchDown 3m yes: down=1x60
TrainjobVisibilityNobodyOwnsJobs 3m yes: owner_a=0x60
TrainjobVisibilityNobodyOwnsJobs 3m no:  owner_a=0x60 owner_b=1x60
TrainjobVisibilityObjectsUnread 9m yes: unread=0+1x60
""".replace("\\\n", "")
    .strip()
    .split("\n")
)
# Days that a certificate lasts and days that are left of them after 2 h; promtool's clock begins at 0.
CASES += [
    f"TrainjobVisibilityCertificateEnds 2h {fires}: ends={left * DAY + 7200}x120 lasts={life * DAY}x120"
    for life, left, fires in (
        (90, 30, "no"), (90, 20, "yes"), (10, 4, "no"), (10, 2, "yes"), (365, 30, "no"), (365, 20, "yes"),
    )
]  # fmt: skip


def test_every_alert_has_a_case() -> None:
    assert {case.split()[0] for case in CASES} == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """By case, what promtool says of it, which is told to expect no alert."""
    directory = tmp_path_factory.mktemp("alerts")
    for number, case in enumerate(CASES):
        head, _, given = case.partition(":")
        series = []
        for each in given.split():
            name, _, values = each.partition("=")
            name, _, replica = name.replace("_", " ").partition("@")
            labels = f',instance="{replica}"}}' if replica else "}"
            series.append(
                {"series": SERIES[name].removesuffix("}") + labels, "values": values.replace(",", " ")}
            )
        alert, at, _ = head.split()
        expected = [{"eval_time": at, "alertname": alert}]
        tests = [{"interval": "1m", "input_series": series, "alert_rule_test": expected}]
        text = yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests})
        (directory / f"{number}.yaml").write_text(text)
    said = promtool(directory, "test", "rules", *(f"{number}.yaml" for number in range(len(CASES))))
    _, *parts = re.split(r"Unit Testing:  \d+\.yaml\n", said.stdout)
    assert len(parts) == len(CASES), said
    return parts


@pytest.mark.parametrize("number", range(len(CASES)), ids=CASES)
def test_an_alert_fires_when_it_should_and_not_when_it_should_not(told: list[str], number: int) -> None:
    alert, _, fires = CASES[number].partition(":")[0].split()
    assert told[number].strip().startswith("FAILED" if fires == "yes" else "SUCCESS")
    assert (f"alertname: {alert}" in told[number]) is (fires == "yes")
