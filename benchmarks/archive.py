"""How long lists of an archive take: a month of 2,000 jobs a day over 20 namespaces, in a directory.

    python -m benchmarks.archive

Prints one JSON object: seconds of the first list of all namespaces, of the next one, of one with a label that
is nowhere, of one namespace; and what an index takes as gzip and, where zstandard is there, as zstd.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import tempfile
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.jobs import document, spent
from visibility_api.archive.bucket import Bucket
from visibility_api.archive.index import Place, read_line, write_lines
from visibility_api.archive.namespaces import Namespaces
from visibility_api.archive.shelf import Shelf
from visibility_api.auth.identity import Attributes, Identity
from visibility_api.history.job_history import JobHistory
from visibility_api.jobs.job import Phase
from visibility_api.jobs.summary import Resources
from visibility_api.kubeapi.job_records import JobRecords
from visibility_api.kubeapi.message import ResourceRequest
from visibility_api.kubeapi.record_encoding import encode_record

DAYS, JOBS_A_DAY, NAMESPACES = 30, 2000, 20
START = datetime(2026, 1, 1, tzinfo=UTC)


class _Cluster:
    async def authorize(self, _identity: Identity, _attributes: Attributes) -> None:
        return

    async def get(self, path: str) -> bytes:
        return json.dumps({"metadata": {"uid": f"uid-{path.rpartition('/')[2]}"}}).encode()


def _record(namespace: str, number: int, at: datetime) -> Any:
    return encode_record(
        document(
            f"train-llama-{number}",
            namespace=namespace,
            uid=f"{number:08x}-1111-2222-3333-444455556666",
            phase=Phase.FAILED if number % 9 == 0 else Phase.SUCCEEDED,
            labels={"team": f"team-{number % 7}", "kueue.x-k8s.io/queue-name": "default"},
            started_at=at,
            ended_at=at + timedelta(hours=1),
            ran_s=3600,
            progress_percentage=100,
            step=1000,
            total_steps=1000,
            metrics=tuple((name, str(random.random())) for name in ("loss", "accuracy", "lr", "grad_norm")),
            goodput=spent({"Productive": 3000, "Starting": 600}, at + timedelta(hours=1)),
            resources=Resources(accelerators=8, by_name=(("nvidia.com/gpu", 8),), held_s=28800, wasted_s=0),
        ),
        JobHistory(),
        False,
        "TrainJob",
    )


async def _fill(bucket: Bucket) -> bytes:
    number = 0
    sample = b""
    for day in range(DAYS):
        for of in range(NAMESPACES):
            namespace = f"team-{of}"
            at = START + timedelta(days=day)
            records = []
            for _ in range(JOBS_A_DAY // NAMESPACES):
                number += 1
                records.append(_record(namespace, number, at + timedelta(seconds=number % 80_000)))
            place = Place(namespace, f"uid-{namespace}", at.strftime("%Y-%m-%d"))
            sample = write_lines(read_line(each.line) for each in records)
            await bucket.put(place.index_path, sample)
    return sample


async def _timed(work: Awaitable[Any]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return {
        "wall_s": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
    }


async def measure() -> dict[str, Any]:
    """The figures, by name."""
    with tempfile.TemporaryDirectory() as directory:
        bucket = Bucket(directory)
        sample = await _fill(bucket)
        records = JobRecords(
            Shelf(bucket, Namespaces(_Cluster())), _Cluster(), now=lambda: START + timedelta(days=DAYS)
        )

        async def ask(namespace: str = "", **query: str) -> int:
            async def receive() -> Any:
                return await asyncio.Future()

            answer = await records.list(
                ResourceRequest(
                    query=list(query.items()),
                    headers=[],
                    attributes=Attributes(verb="list", path="", namespace=namespace),
                    receive=receive,
                )
            )
            return len(answer.body)

        found = {
            "first": await _timed(ask(limit="500")),
            "again": await _timed(ask(limit="500")),
            "by label, all read": await _timed(ask(labelSelector="team=none")),
            "one namespace": await _timed(ask("team-3", limit="500")),
        }
        sizes: dict[str, Any] = {"lines": len(sample), "gzip": len(gzip.compress(sample, 6))}
        try:
            import zstandard

            sizes["zstd"] = len(zstandard.ZstdCompressor(3).compress(sample))
        except ImportError:
            pass
        bucket.close()
        return {"jobs": DAYS * JOBS_A_DAY, "lists": found, "bytes of 100 lines": sizes}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=2))
