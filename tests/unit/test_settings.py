"""Flags and environment become settings, or one message with every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from visibility_api.settings import SettingsError, read_settings, shown


def test_defaults_work_in_a_pod() -> None:
    settings = read_settings([], {})
    assert settings.kubeconfig is None
    assert settings.namespaces == ()
    assert settings.serving.secure_port == 10250
    assert (settings.probe.interval_s, settings.probe.timeout_s) == (15.0, 5.0)


def test_each_flag_is_a_variable_too_and_the_flag_wins() -> None:
    environment = {"VISIBILITY_PROBE_INTERVAL": "30s", "VISIBILITY_SECURE_PORT": "8443"}
    settings = read_settings(["--secure-port", "9443"], environment)
    assert settings.probe.interval_s == 30.0
    assert settings.serving.secure_port == 9443


def test_all_faults_are_told_together_each_with_what_would_be_accepted(tmp_path: Path) -> None:
    arguments = [
        *("--probe-interval", "10ms"),
        *("--secure-port", "https"),
        *("--bind-address", "everywhere"),
        *("--kubeconfig", str(tmp_path / "none")),
        *("--sources", "exec,telepathy"),
        *("--namespaces", "Team_A"),
        *("--store", "etcd"),
    ]
    with pytest.raises(SettingsError) as raised:
        read_settings(arguments, {})
    lines = str(raised.value).splitlines()
    for flag in arguments[::2]:
        assert any(line.startswith(flag + " ") for line in lines), flag
    assert '--secure-port "https": give a whole number from 0 to 65535' in lines


def test_a_timeout_longer_than_the_interval_is_refused() -> None:
    with pytest.raises(SettingsError, match="must not exceed"):
        read_settings(["--probe-interval", "2s", "--probe-timeout", "3s"], {})


def test_an_interval_that_cannot_be_read_is_the_only_fault_named() -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings(["--probe-interval", "1x"], {})
    assert str(raised.value) == '--probe-interval "1x": give a duration from 1s to 3600s, such as "15s"'


def test_half_a_key_pair_is_refused(tmp_path: Path) -> None:
    cert = tmp_path / "tls.crt"
    cert.touch()
    with pytest.raises(SettingsError, match="give both or neither"):
        read_settings(["--tls-cert-file", str(cert)], {})


def test_go_durations_are_understood() -> None:
    assert read_settings(["--probe-interval", "1m30s"], {}).probe.interval_s == 90.0


def test_abbreviated_flags_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--probe-int", "30s"], {})
    assert "unrecognized arguments" in capsys.readouterr().err


def test_what_is_shown_at_start_names_every_setting_and_opens_no_file(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("s3cr3t")
    said = shown(read_settings(["--kubeconfig", str(file), "--namespaces", "a,b", "--sources", ""], {}))
    assert (said["kubeconfig"], said["namespaces"], said["sources"]) == (str(file), "a,b", "")
    assert said["bind_address"] == "0.0.0.0"
    assert said["concurrency"] == 256
    assert "s3cr3t" not in str(said)


def test_peers_add_up_each_a_name_with_or_without_a_port() -> None:
    arguments = ["--sources=push", "--peers=one.ns.svc,127.0.0.1:8443", "--peers", "other"]
    assert read_settings(arguments, {}).peers == ("one.ns.svc", "127.0.0.1:8443", "other")
    assert read_settings(["--sources=push"], {"VISIBILITY_PEERS": "one"}).peers == ("one",)
    assert read_settings([], {}).peers == ()


@pytest.mark.parametrize(
    "peer", ["https://one", "one:0", "one:65536", "one:https", ":8443", "-one", "one two", "[::1]:8443"]
)
def test_a_peer_that_is_no_name_is_refused(peer: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings(["--sources=push", f"--peers={peer}"], {})
    assert str(raised.value) == f'--peers "{peer}": give HOST or HOST:PORT, separated by commas'


def test_peers_without_pushes_are_refused() -> None:
    with pytest.raises(SettingsError, match="--peers: needs push among --sources"):
        read_settings(["--peers=one"], {})
