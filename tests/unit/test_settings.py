"""Flags, variables and a file become settings, or one message with every fault."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from visibility_api.settings import ENVIRONMENT_PREFIX, Settings, SettingsError, read_settings, shown


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(ENVIRONMENT_PREFIX):
            monkeypatch.delenv(name)


def test_defaults_work_in_a_pod() -> None:
    settings = read_settings([])
    assert settings.kubeconfig is None
    assert settings.namespaces == ()
    assert settings.secure_port == 10250
    assert (settings.probe_interval, settings.probe_timeout) == (timedelta(seconds=15), timedelta(seconds=5))


def test_a_flag_takes_precedence_over_a_variable_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("probe-interval: 60s\nsecure-port: 1\nsources: [push, status]\nwrite-back: true\n")
    monkeypatch.setenv("VISIBILITY_PROBE_INTERVAL", "30s")
    monkeypatch.setenv("VISIBILITY_SECURE_PORT", "8443")
    settings = read_settings(["--config", str(file), "--secure-port", "9443"])
    assert settings.secure_port == 9443
    assert settings.probe_interval == timedelta(seconds=30)
    assert (settings.sources, settings.write_back) == (("push", "status"), True)


def test_a_variable_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("v: 4\n")
    monkeypatch.setenv("VISIBILITY_CONFIG", str(file))
    assert read_settings([]).v == 4


def test_variables_that_kubernetes_sets_for_the_service_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VISIBILITY_API_SERVICE_HOST", "10.96.0.7")
    monkeypatch.setenv("VISIBILITY_API_PORT", "tcp://10.96.0.7:443")
    read_settings([])


def faults_of(*arguments: str) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        read_settings(arguments)
    return str(raised.value).splitlines()


def test_a_fault_names_the_value_and_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("probe-interval: 15\n")
    monkeypatch.setenv("VISIBILITY_SECURE_PORT", "https")
    assert faults_of("--config", str(file), "--v", "11") == [
        '--v "11": give a whole number from 0 to 10',
        '--secure-port "https" in VISIBILITY_SECURE_PORT: give a whole number from 0 to 65535',
        f'--probe-interval "15" in {file}: give a duration from 1s to 3600s, such as "15s"',
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("probe-intervall: 15s", 'there is no setting "probe-intervall"; names are those of the flags'),
        ("probe_interval: 15s", 'there is no setting "probe_interval"; names are those of the flags'),
        ("sources: [\nx", "is not valid YAML in line 2"),
        ("- sources", 'give one setting a line, such as "probe-interval: 30s"'),
    ],
)
def test_a_file_that_cannot_be_used_is_reported_with_all_other_faults(
    content: str, fault: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    assert sorted(faults_of("--config", str(file), "--secure-port=-1")) == [
        f'--config "{file}": {fault}',
        '--secure-port "-1": give a whole number from 0 to 65535',
    ]


@pytest.mark.parametrize("value", ["true", "2.5", "[1]", "null", "'1_000'", '"\\u0661"'])
def test_only_a_whole_number_is_one(value: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"probe-concurrency: {value}\n")
    (fault,) = faults_of("--config", str(file))
    assert fault.endswith(": give a whole number from 1 to 1024")


def test_all_faults_are_reported_together_each_with_what_would_be_accepted(tmp_path: Path) -> None:
    arguments = [
        *("--probe-interval", "10ms"),
        *("--secure-port", "https"),
        *("--bind-address", "everywhere"),
        *("--kubeconfig", str(tmp_path / "none")),
        *("--sources", "exec,telepathy"),
        *("--namespaces", "Team_A"),
        *("--write-back", "perhaps"),
        *("--v", "loud"),
    ]
    with pytest.raises(SettingsError) as raised:
        read_settings(arguments)
    lines = str(raised.value).splitlines()
    for flag in arguments[::2]:
        assert any(line.startswith(flag + " ") for line in lines), flag
    assert '--secure-port "https": give a whole number from 0 to 65535' in lines


def test_a_timeout_longer_than_the_interval_is_refused() -> None:
    with pytest.raises(SettingsError, match="must not exceed"):
        read_settings(["--probe-interval", "2s", "--probe-timeout", "3s"])


@pytest.mark.parametrize(
    ("arguments", "timeout_s"), [((), 5), (("--probe-interval=2s",), 2), (("--probe-interval=1m",), 5)]
)
def test_the_timeout_is_never_longer_than_the_interval_by_default(
    arguments: tuple[str, ...], timeout_s: float
) -> None:
    assert read_settings(arguments).probe_timeout == timedelta(seconds=timeout_s)


def test_half_a_key_pair_is_refused(tmp_path: Path) -> None:
    cert = tmp_path / "tls.crt"
    cert.touch()
    with pytest.raises(SettingsError, match="give both or neither"):
        read_settings(["--tls-cert-file", str(cert)])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--otlp-endpoint=http://collector:4318"], "give that as well"),
        (["--job-metrics=9", "--otlp-endpoint=collector:4318"], "give a URL such as https://collector:4318"),
        (["--job-metrics=9", "--otlp-endpoint=https://a:b@collector"], "without a user"),
    ],
)
def test_a_push_of_metrics_needs_metrics_and_a_url_without_a_user(arguments: list[str], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        read_settings(arguments)


def test_go_durations_are_understood() -> None:
    assert read_settings(["--probe-interval", "1m30s"]).probe_interval == timedelta(seconds=90)


def test_abbreviated_flags_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--probe-int", "30s"])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_what_is_shown_at_start_names_every_setting_and_opens_no_file(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("s3cr3t")
    said = shown(read_settings(["--kubeconfig", str(file), "--namespaces", "a,b", "--sources", ""]))
    assert set(said) == set(Settings.model_fields)
    assert (said["kubeconfig"], said["namespaces"], said["sources"]) == (str(file), "a,b", "")
    assert said["bind_address"] == "0.0.0.0"
    assert (said["probe_concurrency"], said["probe_interval"]) == (256, "15s")
    assert "s3cr3t" not in str(said)


def test_a_switch_alone_is_on() -> None:
    assert read_settings(["--write-back"]).write_back
    assert not read_settings(["--write-back=false"]).write_back


def test_help_names_every_flag_its_default_and_its_bounds_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        read_settings(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) < 80
    assert all(f"--{name.replace('_', '-')} " in text for name in Settings.model_fields)
    plain = " ".join(text.split())
    assert "--secure-port PORT HTTPS port. 0 means any free port (default: 10250)" in plain
    assert "VISIBILITY_PROBE_INTERVAL" in plain


def test_peers_add_up_each_a_name_with_or_without_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--sources=push", "--peers=one.ns.svc,127.0.0.1:8443", "--peers", "other"]
    assert read_settings(arguments).peers == ("one.ns.svc", "127.0.0.1:8443", "other")
    assert read_settings([]).peers == ()
    monkeypatch.setenv("VISIBILITY_PEERS", "one")
    assert read_settings(["--sources=push"]).peers == ("one",)


@pytest.mark.parametrize(
    "peer", ["https://one", "one:0", "one:65536", "one:https", ":8443", "-one", "one two", "[::1]:8443"]
)
def test_a_peer_that_is_no_name_is_refused(peer: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings(["--sources=push", f"--peers={peer}"])
    assert str(raised.value) == f'--peers "{peer}": give HOST or HOST:PORT, separated by commas'


def test_state_is_kept_where_a_directory_is_given() -> None:
    assert read_settings([]).data_dir is None
    settings = read_settings(["--data-dir=/var/lib/x", "--data-dir-max-mib=64", "--data-dir-max-age=720h"])
    assert (settings.data_dir, settings.data_dir_max_mib) == (Path("/var/lib/x"), 64)
    assert settings.data_dir_max_age == timedelta(days=30)
    assert shown(settings)["data_dir_max_age"] == "2592000s"


@pytest.mark.parametrize(
    "given",
    [
        ("--trusted-proxy-client-ca-file={ca}",),
        ("--trusted-proxy-client-ca-file={ca}", "--trusted-proxy-user-header=kubeflow-userid"),
        ("--trusted-proxy-client-ca-file={ca}", "--trusted-proxy-allowed-names=ingress"),
        ("--trusted-proxy-allowed-names=ingress", "--trusted-proxy-user-header=kubeflow-userid"),
        ("--trusted-proxy-user-header=kubeflow-userid",),
    ],
)
def test_half_a_trusted_proxy_is_refused(given: tuple[str, ...], tmp_path: Path) -> None:
    """Without names every certificate of its CA would do, without a header nobody would be named."""
    ca = tmp_path / "ca.crt"
    ca.touch()
    (fault,) = faults_of(*(each.format(ca=ca) for each in given))
    assert fault.endswith("give all three or none")


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("--trusted-proxy-group-header=a b", "give the name of an HTTP header"),
        ("--trusted-proxy-user-prefix=system:", "which is Kubernetes' own"),
        ("--trusted-proxy-group-prefix=system:serviceaccounts:", "which is Kubernetes' own"),
    ],
)
def test_a_trusted_proxy_with_a_wrong_header_or_prefix_is_refused(flag: str, fault: str) -> None:
    (found,) = faults_of(flag)
    assert found.endswith(fault)


@pytest.mark.parametrize("flag", ["--store=nats://me:s3cret@nats:4222", "--archive=s3://me:s3cret@bucket"])
def test_a_fault_shows_no_credentials_of_a_url(flag: str) -> None:
    with pytest.raises(SettingsError) as fault:
        read_settings([flag])
    assert "s3cret" not in str(fault.value)
    assert "without credentials" in str(fault.value)
