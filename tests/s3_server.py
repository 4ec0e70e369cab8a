"""A real server of S3's interface (moto's), in which an archive is kept: `make test-s3` installs it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.e2e.processes import Daemon, free_port, wait_until

_INSTALLED = Path(__file__).parents[1] / ".venv-s3/bin/moto_server"
_BUCKET = "past-jobs"


class Archive(NamedTuple):
    """`location` is the server's `--archive`, `environment` what the server needs to write there."""

    location: str
    environment: Mapping[str, str]


@contextlib.contextmanager
def s3_server(directory: Path) -> Iterator[Archive]:
    """An empty bucket; the test is skipped where moto is not installed."""
    program = str(_INSTALLED) if _INSTALLED.exists() else shutil.which("moto_server")
    if not program:
        pytest.skip("no S3 server here: make test-s3 installs one")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [program, "--host", "127.0.0.1", "--port", str(port)]
    served = Daemon("moto", argv, log=directory / "s3.log")
    served.start()
    try:
        with httpx.Client(trust_env=False) as client:
            wait_until(lambda: _answers(client, url), what="the S3 server answers")
            client.put(f"{url}/{_BUCKET}").raise_for_status()
        credentials = {"AWS_ACCESS_KEY_ID": "archive", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
        where = {"AWS_ENDPOINT": url, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
        yield Archive(f"s3://{_BUCKET}/of-a-cluster", {**credentials, **where})
    finally:
        served.stop()


def _answers(client: httpx.Client, url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return client.get(url).is_success
    return False
