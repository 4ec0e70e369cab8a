"""Every setting, its unit, its default and why; read once, at the root.

Each is a flag and a `VISIBILITY_…` variable of the same name; the flag wins. Flag names are those that
Kubernetes components use. Faults are collected and reported together.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from visibility_api import __version__
from visibility_api.progress.duration import parse_duration_s

ENVIRONMENT_PREFIX = "VISIBILITY_"
SOURCES = ("exec", "http", "logs", "push", "status")  # termination messages are always read
_PEER = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?(:[1-9][0-9]{0,4})?", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class SettingsError(Exception):
    """One or more settings cannot be used; the message has a line for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """Where and how the API is served."""

    bind_address: str
    secure_port: int  # 0 = any free one
    tls_cert_file: Path | None  # both files, or neither: then a self-signed pair is made in cert_dir
    tls_private_key_file: Path | None
    cert_dir: Path
    shutdown_delay_s: float  # between failing /readyz and closing: longer than endpoints take to follow


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """How callers are identified and their rights looked up; None = as `kubeconfig`."""

    authentication_kubeconfig: Path | None
    authorization_kubeconfig: Path | None
    tolerate_lookup_failure: bool  # go on when the front proxy's CA may not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How jobs are asked."""

    sources: tuple[str, ...]
    interval_s: float  # between two looks at one job
    timeout_s: float  # for one look, connection included
    concurrency: int  # looks at a time, of all jobs together


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    kubeconfig: Path | None  # None = the pod's own service account
    namespaces: tuple[str, ...]  # () = the whole cluster
    verbosity: int  # 0 info, from 4 debug, as in Kubernetes components
    write_back: bool  # off, for each change is a write to etcd and needs a right to write
    peers: tuple[str, ...]  # HOST or HOST:PORT: the other replicas, which are told of pushes; () = nobody
    serving: ServingSettings
    auth: AuthSettings
    probe: ProbeSettings


# name, default, metavar, help; every value is text here, as flags and environment give it.
_FLAGS: tuple[tuple[str, str, str, str], ...] = (
    ("kubeconfig", "", "FILE", "kubeconfig for the cluster; default: the pod's own service account"),
    ("authentication-kubeconfig", "", "FILE", "kubeconfig for token reviews; default: as --kubeconfig"),
    ("authorization-kubeconfig", "", "FILE", "kubeconfig for access reviews; default: as --kubeconfig"),
    (
        "authentication-tolerate-lookup-failure",
        "false",
        "BOOL",
        "start even if extension-apiserver-authentication may not be read: no front proxy is trusted then",
    ),
    ("bind-address", "0.0.0.0", "IP", "address to listen on"),  # noqa: S104 - a pod is reached from outside
    ("secure-port", "10250", "PORT", "HTTPS port; 10250 is the one private control planes let through"),
    ("tls-cert-file", "", "FILE", "serving certificate (PEM), read again when it changes"),
    ("tls-private-key-file", "", "FILE", "its private key (PEM)"),
    ("cert-dir", "apiserver.local.config/certificates", "DIR", "where a self-signed pair goes without those"),
    ("shutdown-delay-duration", "5s", "DURATION", "keep serving this long after /readyz begins to fail"),
    (
        "sources",
        "exec,status",
        "LIST",
        f"how progress is read, of {', '.join(SOURCES)}; given again, it adds more; each needs its rights",
    ),
    ("probe-interval", "15s", "DURATION", "time between two looks at one job; at least 1s"),
    ("probe-timeout", "5s", "DURATION", "time for one look; less than the interval or equal"),
    ("probe-concurrency", "256", "N", "looks at a time, of all jobs together; 1 to 1024"),
    (
        "write-back",
        "false",
        "BOOL",
        "put a summary into each TrainJob's status.trainerStatus, at most every 30s a job; needs its right",
    ),
    (
        "peers",
        "",
        "HOST",
        "name of all replicas, or HOST:PORT: tell them what is pushed here; they must share one certificate",
    ),
    ("store", "memory", "STORE", "where documents live; memory is the only one yet"),
    ("namespaces", "", "LIST", "serve the jobs of these namespaces only; default: all"),
    ("v", "0", "LEVEL", "log verbosity; 4 and above log each probe"),
)

_ADDING_UP = ("sources", "peers")


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings of `visibility-api serve ARGUMENTS`. Raises SettingsError; argparse exits on --help."""
    values = _gather(arguments, environment)
    faults: list[str] = []

    def duration(name: str, least_s: float, most_s: float) -> float:
        seconds = parse_duration_s(values[name])
        if seconds is None or not least_s <= seconds <= most_s:
            faults.append(
                f'--{name} "{values[name]}": give a duration from {least_s:g}s to {most_s:g}s, such as "15s"'
            )
            return least_s
        return seconds

    def number(name: str, least: int, most: int) -> int:
        text = values[name]
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
            faults.append(f'--{name} "{text}": give a whole number from {least} to {most}')
            return least
        return int(text)

    def file(name: str) -> Path | None:
        if not values[name]:
            return None
        path = Path(values[name])
        if not path.is_file():
            faults.append(f'--{name} "{path}": there is no such file')
        return path

    settings = Settings(
        kubeconfig=file("kubeconfig"),
        namespaces=_words(values["namespaces"]),
        verbosity=number("v", 0, 10),
        write_back=_is_true("write-back", values, faults),
        peers=_words(values["peers"]),
        serving=ServingSettings(
            bind_address=values["bind-address"],
            secure_port=number("secure-port", 0, 65535),
            tls_cert_file=file("tls-cert-file"),
            tls_private_key_file=file("tls-private-key-file"),
            cert_dir=Path(values["cert-dir"]),
            shutdown_delay_s=duration("shutdown-delay-duration", 0, 600),
        ),
        auth=AuthSettings(
            authentication_kubeconfig=file("authentication-kubeconfig"),
            authorization_kubeconfig=file("authorization-kubeconfig"),
            tolerate_lookup_failure=_is_true("authentication-tolerate-lookup-failure", values, faults),
        ),
        probe=ProbeSettings(
            sources=_words(values["sources"]),
            interval_s=duration("probe-interval", 1, 3600),
            timeout_s=duration("probe-timeout", 0.1, 600),
            concurrency=number("probe-concurrency", 1, 1024),
        ),
    )
    are_comparable = not any(fault.startswith("--probe-") for fault in faults)
    faults.extend(_faults_across(settings, values["store"], are_comparable=are_comparable))
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def shown(settings: Settings) -> dict[str, str | int | float | bool | None]:
    """The effective values by field name, for the log; none of them is a secret, files are only named."""
    flat: dict[str, str | int | float | bool | None] = {}
    for part in (settings, settings.serving, settings.auth, settings.probe):
        for field in fields(part):
            value = getattr(part, field.name)
            if isinstance(value, (ServingSettings, AuthSettings, ProbeSettings)):
                continue
            if isinstance(value, tuple):
                value = ",".join(value)
            flat[field.name] = str(value) if isinstance(value, Path) else value
    return flat


def _gather(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    parser = argparse.ArgumentParser(
        prog="visibility-api serve",
        description="Serve the progress of training jobs as an aggregated Kubernetes API.",
        epilog=f"Each flag is also {ENVIRONMENT_PREFIX}… in the environment, e.g. VISIBILITY_PROBE_INTERVAL.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trainjob-visibility {__version__}")
    defaults: dict[str, str] = {}
    for name, default, metavar, text in _FLAGS:
        variable = ENVIRONMENT_PREFIX + name.upper().replace("-", "_")
        shown = f" (default {default})" if default else ""
        names = ["-v", "--v"] if name == "v" else [f"--{name}"]
        parser.add_argument(*names, dest=name, action="append", metavar=metavar, help=text + shown)
        defaults[name] = environment.get(variable, default)
    given = vars(parser.parse_args(list(arguments)))
    # The last one wins, except that some add up: each part of a deployment brings its own.
    return {
        name: default if not (said := given[name]) else ",".join(said) if name in _ADDING_UP else said[-1]
        for name, default in defaults.items()
    }


def _faults_across(settings: Settings, store: str, *, are_comparable: bool) -> list[str]:
    faults = []
    serving, probe = settings.serving, settings.probe
    try:
        ipaddress.ip_address(serving.bind_address)
    except ValueError:
        faults.append(f'--bind-address "{serving.bind_address}": give an IP address')
    if (serving.tls_cert_file is None) != (serving.tls_private_key_file is None):
        faults.append("--tls-cert-file and --tls-private-key-file: give both or neither")
    # A duration that could not be read stands at its least: comparing it would name a fault nobody made.
    if are_comparable and probe.timeout_s > probe.interval_s:
        faults.append(
            f"--probe-timeout {probe.timeout_s:g}s must not exceed --probe-interval {probe.interval_s:g}s"
        )
    if unknown := [s for s in probe.sources if s not in SOURCES]:
        faults.append(f'--sources "{",".join(unknown)}": known are {", ".join(SOURCES)}')
    if unnamed := [n for n in settings.namespaces if not _NAMESPACE.fullmatch(n)]:
        faults.append(f'--namespaces "{",".join(unnamed)}": give namespace names, separated by commas')
    if wrong := [peer for peer in settings.peers if not _is_peer(peer)]:
        faults.append(f'--peers "{",".join(wrong)}": give HOST or HOST:PORT, separated by commas')
    if settings.peers and "push" not in probe.sources:
        faults.append("--peers: needs push among --sources")
    if store != "memory":
        faults.append(f'--store "{store}": memory is the only store yet')
    return faults


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _is_true(name: str, values: Mapping[str, str], faults: list[str]) -> bool:
    if values[name] not in ("true", "false"):
        faults.append(f'--{name} "{values[name]}": give true or false')
    return values[name] == "true"


def _is_peer(peer: str) -> bool:
    return _PEER.fullmatch(peer) is not None and int(peer.partition(":")[2] or 0) <= 65535
