"""A process that only serves imports nothing of modules that it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SERVES = """
import sys
from visibility_api.cli import main

assert main(["serve", f"--kubeconfig={sys.argv[1]}"]) == 1

from kubernetes_asyncio import client, config
from visibility_api.unused_modules import NotImported

assert client.V1Pod is client.CoreV1Api is client.ApiClient is NotImported
assert sys.modules["pydantic.v1"].BaseModel is NotImported
assert client.Configuration(host="https://h").host == "https://h"
assert config.load_kube_config.__module__ == "kubernetes_asyncio.config.kube_config"
"""
USES_THEM = """
from kubernetes_asyncio import client
from visibility_api.unused_modules import skip_unused_modules

skip_unused_modules()
import visibility_api.server

assert client.V1Pod(kind="Pod").kind == "Pod"
"""


def run(program: str, *arguments: str) -> str:
    argv = [sys.executable, "-c", program, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stderr


def test_what_is_used_works_without_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("{}")
    assert "Traceback" not in run(SERVES, str(tmp_path / "kubeconfig"))


def test_a_process_that_has_imported_them_keeps_them() -> None:
    assert run(USES_THEM) == ""
