"""`python -m benchmarks.encoding`: documents written and reports read, by msgspec as we do, and by pydantic.

To write, both fill the same fields from the same internal document, then turn what they filled into bytes.
To read, pydantic only validates; what we do makes the internal value of it as well, and a push's echo.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest import mock

from tests.jobs import rank0
from visibility_api.jobs.job import JobRef, Phase, Replica, TrainingJob
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi import v1alpha1 as encoder
from visibility_api.models import meta_v1, v1alpha1 as models
from visibility_api.models.wire import WireModel
from visibility_api.pushing.payload import read_payload
from visibility_api.reports.training_document import parse_document
from visibility_api.store import Entry

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REVISION = 1_767_323_045_000_001

# The encoder's classes, each made by `struct_of` from the model beside it.
FILLED: dict[str, type[WireModel]] = {
    "_ObjectMeta": meta_v1.ObjectMeta,
    "_Condition": meta_v1.Condition,
    "_Metric": models.Metric,
    "_Steps": models.Steps,
    "_Epochs": models.Epochs,
    "_Rank0": models.Rank0,
    "_Termination": models.Termination,
    "_Replica": models.Replica,
    "_Observation": models.Observation,
    "_ProgressStatus": models.ProgressStatus,
}

Encode = Callable[[JobProgress], bytes]


def document(number: int) -> JobProgress:
    """A running job as Kueue leaves it: four metrics, five conditions."""
    name = f"train-{number:05}"
    job = TrainingJob(
        ref=JobRef(resource="trainjobs", namespace=f"team-{number % 50}", name=name, uid=f"{number:036}"),
        labels={"team": "research", "kueue.x-k8s.io/queue-name": "gpus"},
        created_at=NOW,
        phase=Phase.RUNNING,
        rank0=rank0(
            pod_name=f"{name}-node-0-0-x7k2p",
            pod_uid="0b8c7a52-6f0b-4a8e-9d53-4f3f5b0d9a11",
            node_name="gpu-worker-17",
            started_at=NOW,
        ),
        replicas=(Replica(name="node", desired=8, ready=8, active=8, succeeded=0, failed=0),),
    )
    conditions = (
        ("Reporting", "True", "ReportRead", "rank 0 reports progress"),
        ("Fresh", "True", "RecentReport", "the last report is 12s old"),
        ("Stalled", "False", "Advancing", ""),
        ("Diverged", "False", "Finite", ""),
        ("Suspended", "False", "Resumed", "TrainJob is resumed"),
    )
    return JobProgress(
        job=job,
        phase=Phase.RUNNING,
        progress_percentage=45,
        remaining_s=795,
        completion_at=NOW,
        completion_range=(NOW, NOW),
        started_at=NOW,
        updated_at=NOW,
        step=450 + number,
        total_steps=10_000,
        steps_per_s=5.4123,
        epoch=1.25,
        total_epochs=2.5,
        metrics=(("loss", "0.2347"), ("learning_rate", "3e-05"), ("grad_norm", "1.02"), ("mem_gb", "61.2")),
        message="evaluating",
        conditions=tuple(
            Condition(type=type_, status=status, reason=reason, message=message, since=NOW)
            for type_, status, reason, message in conditions
        ),
        observation=ObservationSummary(
            source="exec",
            last_probe_at=NOW,
            next_probe_at=NOW,
            latency_s=0.0123,
            consecutive_failures=0,
            reason="",
            message="",
        ),
        seen_at=NOW,
    )


def by_msgspec(shown: JobProgress) -> bytes:
    """What the server does for each change of a document."""
    return encoder.Codec(TrainJobKind.served).document(Entry(document=shown, revision=REVISION))


@contextmanager
def _by_msgspec() -> Iterator[Encode]:
    yield by_msgspec


@contextmanager
def _by_pydantic(make: Callable[..., Any]) -> Iterator[Encode]:
    """The encoder's own functions filling models instead of Structs; `make` constructs a model."""

    def filling(model: type[WireModel]) -> Callable[..., Any]:
        return lambda **values: make(model, **values)

    whole_of = filling(models.TrainJobProgress)

    def encode(shown: JobProgress) -> bytes:
        entry = Entry(document=shown, revision=REVISION)
        whole: WireModel = whole_of(metadata=encoder.metadata_of(entry), status=encoder.status_of(shown))
        return whole.encode()

    classes: dict[str, Any] = {name: filling(model) for name, model in FILLED.items()}
    with mock.patch.multiple(encoder, **classes, _whole_seconds=lambda moment: moment):
        yield encode


WAYS: dict[str, Callable[[], AbstractContextManager[Encode]]] = {
    "msgspec, Structs of the models": _by_msgspec,
    "pydantic, validated": partial(_by_pydantic, lambda model, **values: model(**values)),
    "pydantic, model_construct": partial(
        _by_pydantic, lambda model, **values: model.model_construct(**values)
    ),
}


def cheapest_s(documents: Sequence[JobProgress], rounds: int) -> dict[str, float]:
    """CPU time to encode all of them, by way; in turns, the cheapest round counts."""
    cheapest: dict[str, float] = {}
    for _ in range(rounds):
        for title, way in WAYS.items():
            with way() as encode:
                gc.collect()
                started_s = time.process_time()
                b",".join([encode(shown) for shown in documents])
                spent_s = time.process_time() - started_s
            cheapest[title] = min(spent_s, cheapest.get(title, spent_s))
    return cheapest


def _print(times_s: dict[str, float], scale: float, unit: str) -> None:
    first_s = next(iter(times_s.values()))
    for title, spent_s in times_s.items():
        print(f"  {title:32} {spent_s * scale:8.2f} {unit}   {spent_s / first_s:6.1f}")


def _of_a_list_again(bodies: Sequence[bytes], rounds: int) -> dict[str, float]:
    """A list of which nothing has changed: bytes that are kept, or models that are kept."""
    items = [models.TrainJobProgress.model_validate_json(body) for body in bodies]
    whole = models.TrainJobProgressList(items=items)
    ways: dict[str, Callable[[], bytes]] = {
        "bytes of the documents, joined": lambda: b",".join(bodies),
        "pydantic, models serialized": whole.encode,
    }
    return _cheapest_call_s(ways, 1, rounds)


PUSH = json.dumps(
    {
        "trainerStatus": {
            "progressPercentage": 45,
            "estimatedRemainingSeconds": 795,
            "metrics": [{"name": name, "value": "0.2347"} for name in ("loss", "eval_loss", "lr", "mem")],
            "lastUpdatedTime": "2026-01-23T10:30:45Z",
        }
    }
).encode()
WRITTEN = json.dumps(
    {
        "schemaVersion": 1,
        "state": "running",
        "step": 450,
        "totalSteps": 1000,
        "epoch": 1,
        "totalEpochs": 3,
        "progressPercentage": 45,
        "estimatedRemainingSeconds": 795,
        "metrics": {"loss": 0.2347, "eval_loss": 0.31, "learning_rate": 3e-05, "mem": 61.2},
        "startTime": "2026-01-23T10:00:02.113250Z",
        "timestamp": "2026-01-23T10:30:45.123456Z",
        "rank": 0,
        "attempt": 0,
    }
).encode()


def _cheapest_call_s(ways: Mapping[str, Callable[[], object]], number: int, rounds: int) -> dict[str, float]:
    cheapest: dict[str, float] = {}
    for _ in range(rounds):
        for title, work in ways.items():
            started_s = time.process_time()
            for _ in range(number):
                work()
            spent_s = (time.process_time() - started_s) / number
            cheapest[title] = min(spent_s, cheapest.get(title, spent_s))
    return cheapest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encoding", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    bodies = {}
    for title, way in WAYS.items():
        with way() as encode:
            bodies[title] = encode(document(0))
    if len({json.dumps(json.loads(body)) for body in bodies.values()}) != 1:
        raise RuntimeError("not all ways write the same document")
    number = 500
    print(f"one document of {len(bodies['pydantic, validated'])} bytes, CPU time and ratio to the first")
    _print(cheapest_s([document(0)] * number, given.rounds), 1e6 / number, "us")
    documents = [document(number) for number in range(given.jobs)]
    print(f"a list of {given.jobs}, none encoded before")
    _print(cheapest_s(documents, given.rounds), 1e3, "ms")
    print("the same list again, nothing changed")
    _print(_of_a_list_again([by_msgspec(each) for each in documents], given.rounds), 1e3, "ms")
    print(f"a push of {len(PUSH)} bytes, read")
    ways: dict[str, Callable[[], object]] = {"read_payload, echo included": lambda: read_payload(PUSH)}
    _print(_cheapest_call_s(ways, 5000, given.rounds), 1e6, "us")
    print(f"a progress document of {len(WRITTEN)} bytes, read")
    ways = {"parse_document": lambda: parse_document(WRITTEN)}
    _print(_cheapest_call_s(ways, 5000, given.rounds), 1e6, "us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
