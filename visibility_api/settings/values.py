"""The types of settings: which text or YAML value is accepted, and the message when it is not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from visibility_api.models.wire import parse_duration_s

_PEER = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9.]{0,251}[a-zA-Z0-9])?(:[1-9][0-9]{0,4})?", re.ASCII)
_HEADER = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,128}", re.ASCII)  # a token of RFC 9110 5.6.2
MAX_METRICS = 16
_METRIC = re.compile(r"[a-zA-Z0-9_./-]{1,63}", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class Conflict(ValueError):
    """Settings that cannot be used together; the message names them all."""


@dataclass(frozen=True, slots=True)
class Metavar:
    """What stands for the value in --help."""

    text: str


def whole_number(least: int, most: int) -> BeforeValidator:
    def parse(value: object) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"give a whole number from {least} to {most}")
        return value

    return BeforeValidator(parse)


def duration(least_s: float, most_s: float) -> BeforeValidator:
    def parse(value: object) -> timedelta:
        if isinstance(value, timedelta):
            return value  # a default
        seconds = parse_duration_s(value) if isinstance(value, str) else None
        if seconds is None or not least_s <= seconds <= most_s:
            raise ValueError(f'give a duration from {least_s:g}s to {most_s:g}s, such as "15s"')
        return timedelta(seconds=seconds)

    return BeforeValidator(parse)


def _file(value: object) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, (str, Path)) or not Path(value).is_file():
        raise ValueError("there is no such file")
    return Path(value)


def _directory(value: object) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, (str, Path)):
        raise ValueError("give a path")
    return Path(value)


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError("give true or false")
    return value == "true"


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise ValueError("give a list of words")
    return tuple(dict.fromkeys(word.strip() for word in value if word.strip()))


def each(accepts: Callable[[str], object], text: str) -> AfterValidator:
    def check(words: tuple[str, ...]) -> tuple[str, ...]:
        if not all(accepts(word) for word in words):
            raise ValueError(text)
        return words

    return AfterValidator(check)


def metric_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MAX_METRICS:
        raise ValueError(f"give at most {MAX_METRICS} names")
    return names


def is_metric(name: str) -> bool:
    return _METRIC.fullmatch(name) is not None


def collector_url(value: str) -> str:
    parts = urlsplit(value)
    if value and (
        parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query
    ):
        raise ValueError("give a URL such as https://collector:4318, without a user; see --otlp-headers-file")
    return value


def is_namespace(name: str) -> bool:
    return _NAMESPACE.fullmatch(name) is not None


def is_peer(peer: str) -> bool:
    return _PEER.fullmatch(peer) is not None and int(peer.partition(":")[2] or 0) <= 65535


def is_nats(server: str) -> bool:
    """Without credentials: settings are logged."""
    parts = urlsplit(server)
    return parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.netloc.count("@") == 0


def namespace(value: str) -> str:
    if not is_namespace(value):
        raise ValueError("give the name of a namespace")
    return value


def archive_location(text: str) -> str:
    """A directory or a URL. No credentials: settings are logged."""
    is_url = text.startswith(("s3://", "gs://", "az://", "file:///"))
    if text and (not (is_url or text.startswith("/")) or any(each in text for each in "?@#")):
        raise ValueError(
            "give an absolute directory, or a URL of s3, gs or az without credentials, such as s3://BUCKET/PATH"
        )
    return text


def secret_name(value: str) -> str:
    if value and not is_namespace(value):
        raise ValueError("give the name of a Secret")
    return value


def header_name(value: str) -> str:
    if value and not _HEADER.fullmatch(value):
        raise ValueError("give the name of an HTTP header")
    return value


def name_prefix(value: str) -> str:
    if value.startswith("system:"):
        raise ValueError("give a prefix that does not begin with system:, which is Kubernetes' own")
    return value


def ip_address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError("give an IP address") from None
    return value


File = Annotated[Path | None, BeforeValidator(_file), Metavar("FILE")]
Directory = Annotated[Path | None, BeforeValidator(_directory), Metavar("DIR")]
AnyPath = Annotated[Path | None, BeforeValidator(lambda value: value or None), Metavar("PATH")]
Switch = Annotated[bool, BeforeValidator(_switch), Metavar("BOOL")]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), Metavar("LIST")]


def shown_value(value: object) -> str | int | bool | None:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, tuple):
        return ",".join(value)
    return seconds(value) if isinstance(value, timedelta) else str(value)


def seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.10g}s"  # no exponent
