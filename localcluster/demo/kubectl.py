"""kubectl where there is one; otherwise the same requests, rendered from the server's own answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import textwrap
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from localcluster.demo.browser import API
from localcluster.machinery.client import ApiClient
from localcluster.machinery.metadata import Object
from localcluster.machinery.pki import client_context
from localcluster.machinery.status import ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TIMEOUT_S = 30
WIDTH = 80
JOBS = "trainingjobs"  # the jobs of all kinds
COLUMNS_OF_EVENTS = {"JOB": ".involvedObject.name", "MESSAGE": ".message"}


class Kubectl:
    """One user's view of one namespace. `show` prints the command as typed, then its answer."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._program = shutil.which("kubectl")

    async def show_jobs(self) -> None:
        """`kubectl get tjs`, or why it was refused."""
        words = ["get", "tjs", "-n", self._namespace]
        _print_command(words)
        answer = await (self._run(words) if self._program else self._table())
        is_one_line = "\n" not in answer  # such as a refusal
        print(textwrap.fill(answer, WIDTH, break_on_hyphens=False) if is_one_line else answer, flush=True)

    async def show_columns(self, names: list[str], columns: dict[str, str]) -> None:
        """`kubectl get tjp NAME… -o custom-columns=…`: header to path."""
        folder = f"{API}/namespaces/{self._namespace}/trainjobprogresses"
        await self._show(["tjp", *names], [f"{folder}/{name}" for name in names], columns)

    async def show_events(self, reason: str) -> None:
        """`kubectl get events` of this reason."""
        selector = f"reason={reason}"
        path = f"/api/v1/namespaces/{self._namespace}/events?fieldSelector={quote(selector)}"
        await self._show(["events", "--field-selector", selector], [path], COLUMNS_OF_EVENTS)

    async def _show(self, what: list[str], paths: list[str], columns: dict[str, str]) -> None:
        wanted = ",".join(f"{header}:{path}" for header, path in columns.items())
        words = ["get", *what, "-n", self._namespace, "-o", f"custom-columns={wanted}"]
        _print_command(words)
        if self._program:
            print(await self._run(words), flush=True)
            return
        rows = [list(columns)]
        for path in paths:
            found = await self.read(path)
            items = found.get("items", [found])
            rows += [[_find(each, field) for field in columns.values()] for each in items]
        print(_align(rows), flush=True)

    async def read(self, path: str) -> Object:
        """The JSON at `path`, as this user."""
        if self._program:
            answer: Object = json.loads(await self._run(["get", "--raw", path]))
            return answer
        async with self.client() as client:
            return await client.request("GET", path)

    async def _run(self, words: list[str]) -> str:
        process = await asyncio.create_subprocess_exec(
            self._program or "kubectl",
            *words,
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await process.communicate()
        return output.decode().rstrip()

    async def _table(self) -> str:
        path = f"{API}/namespaces/{self._namespace}/{JOBS}"
        try:
            async with self.client() as client:
                table = await client.request("GET", path, accept=TABLE)
        except ApiError as error:
            return f"Error from server ({error.reason}): {error}"
        shown = [i for i, c in enumerate(table["columnDefinitions"]) if c["priority"] == 0]
        rows = [[c["name"].upper() for c in table["columnDefinitions"]], *(r["cells"] for r in table["rows"])]
        cells = [["" if row[i] is None else str(row[i]) for i in shown] for row in rows]
        return _align(cells)

    def client(self) -> ApiClient:
        """Requests as this user."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = client_context(
            Path(cluster["certificate-authority"]).read_text(),
            Path(user["client-certificate"]),
            Path(user["client-key"]),
        )
        return ApiClient(cluster["server"], context)


def _align(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("   ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def _find(item: Object, path: str) -> str:
    """As kubectl shows what is there at `.a[0].b`."""
    found: Any = item
    for name in re.findall(r"\w+", path):
        if isinstance(found, list):
            found = dict(enumerate(found)).get(int(name))
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return "<none>" if found is None else str(found)


def _print_command(words: list[str]) -> None:
    print("$ kubectl " + shlex.join(words), flush=True)
