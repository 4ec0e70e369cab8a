"""The encoder and the models say the same: one description of the wire, which cannot drift."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from tests.unit.test_app_published import PUSH_SCHEMA
from tests.unit.test_app_schemas import FULL
from visibility_api.jobs.job import JobRef, Phase, Rank0, Replica, Termination, TrainingJob
from visibility_api.jobs.summary import Condition, JobProgress, ObservationSummary, Resources
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi.v1alpha1 import Codec
from visibility_api.models import meta_v1, v1alpha1
from visibility_api.models.v1alpha1 import TrainJobProgress
from visibility_api.models.wire import WireModel, struct_of
from visibility_api.store import Entry
from visibility_api.writeback.trainer_status import summarize

CODEC = Codec(TrainJobKind.served)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
NAME = st.text(string.ascii_lowercase, min_size=1, max_size=12)
SHORT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)
COUNT = st.integers(0, 2**63)  # as the specs of a kind whose CRD has no schema, multiplied or added up
STEP = st.integers(0, 2**53)
RATE = st.floats(min_value=0)  # infinity too
EPOCH = st.floats(0, 2**53)  # as every reader of reports bounds it
TIME = st.datetimes(
    datetime(1970, 1, 2),
    datetime(9998, 12, 30),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


TERMINATIONS = st.builds(
    Termination,
    exit_code=st.integers(-(2**31), 2**31 - 1),
    signal=maybe(st.integers(1, 64)),
    reason=TEXT,
    finished_at=maybe(TIME),
)
RANK0 = st.builds(
    Rank0,
    pod_name=NAME,
    node_name=maybe(NAME),
    container_name=NAME,
    restart_count=COUNT,
    last_termination=maybe(TERMINATIONS),
)
REPLICAS = st.builds(
    Replica,
    name=NAME,
    **dict.fromkeys(("desired", "ready", "active", "succeeded", "failed"), maybe(COUNT)),
)
JOBS = st.builds(
    TrainingJob,
    ref=st.builds(JobRef, resource=st.just("trainjobs"), namespace=NAME, name=NAME, uid=NAME),
    labels=st.dictionaries(NAME, NAME, max_size=3),
    created_at=maybe(TIME),
    rank0=maybe(RANK0),
    replicas=st.lists(REPLICAS, max_size=3).map(tuple),
)
CONDITIONS = st.builds(
    Condition,
    type=NAME,
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=NAME,
    message=TEXT,
    since=TIME,
)
OBSERVATIONS = st.builds(
    ObservationSummary,
    source=NAME,
    last_probe_at=maybe(TIME),
    next_probe_at=maybe(TIME),
    latency_s=maybe(RATE),
    consecutive_failures=COUNT,
    reason=TEXT,
    message=TEXT,
)
RESOURCES = st.builds(
    Resources,
    accelerators=COUNT.map(lambda count: count + 1),
    by_name=st.lists(st.tuples(NAME, COUNT.map(lambda count: count + 1)), max_size=2).map(tuple),
    held_s=STEP,
    wasted_s=maybe(STEP),
)
DOCUMENTS = st.builds(
    JobProgress,
    job=JOBS,
    phase=st.sampled_from(Phase),
    progress_percentage=maybe(st.integers(0, 100)),
    remaining_s=maybe(COUNT),
    completion_at=maybe(TIME),
    completion_range=maybe(st.tuples(TIME, TIME)),
    started_at=maybe(TIME),
    updated_at=maybe(TIME),
    step=maybe(STEP),
    total_steps=maybe(STEP),
    steps_per_s=maybe(RATE),
    epoch=maybe(EPOCH),
    total_epochs=maybe(EPOCH),
    metrics=st.dictionaries(SHORT, SHORT, max_size=4).map(lambda metrics: tuple(metrics.items())),
    message=maybe(TEXT),
    attempts=maybe(COUNT.map(lambda count: count + 1)),
    resources=maybe(RESOURCES),
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
    observation=maybe(OBSERVATIONS),
)


def encoded(document: JobProgress) -> bytes:
    return CODEC.document(Entry(document=document, revision=12))


def read_strictly(body: bytes) -> TrainJobProgress:
    return TrainJobProgress.model_validate_json(body, strict=True, extra="forbid")


@given(DOCUMENTS)
def test_whatever_is_encoded_is_what_the_models_describe(document: JobProgress) -> None:
    """No field without a model, no null, no other type, nothing out of bounds, and nothing lost."""
    body = encoded(document)
    assert json.loads(read_strictly(body).encode()) == json.loads(body)


@given(DOCUMENTS, TIME)
def test_a_summary_that_is_written_back_is_a_trainer_status(document: JobProgress, at: datetime) -> None:
    """Else the CRD's own schema refuses the whole write."""
    body = msgspec.json.encode(summarize(document, at.astimezone(UTC)))
    PUSH_SCHEMA.validate({"trainerStatus": json.loads(body)})


def test_fields_stand_in_the_order_of_the_models() -> None:
    body = encoded(FULL)
    assert list(paths_of_json(json.loads(read_strictly(body).encode()))) == list(
        paths_of_json(json.loads(body))
    )


def test_every_field_of_the_models_is_encoded() -> None:
    paths = set(paths_of_model(TrainJobProgress))
    below = ("status.replicaStatuses", "status.diagnosis.groups[].frames")
    of_replicas = {path for path in paths if path.startswith(below)}
    assert paths - of_replicas == set(paths_of_json(json.loads(encoded(FULL))))  # the rest: test_app_schemas


def test_phases_of_the_models_are_those_of_jobs() -> None:
    assert get_args(v1alpha1.Phase) == tuple(phase.value for phase in Phase)


def test_a_struct_has_no_default_but_absence() -> None:
    """Any other value that is equal to its default would be left out."""

    class Counted(WireModel):
        """A model with a default that is a value."""

        count: int = 0

    with pytest.raises(TypeError, match=r"Counted\.count: only None can be the default"):
        struct_of(Counted)


def test_a_struct_refuses_a_field_that_its_model_lacks() -> None:
    with pytest.raises(TypeError):
        struct_of(meta_v1.StatusCause)(surprise="x")  # type: ignore[call-arg]


def paths_of_json(value: object, at: str = "") -> Iterator[str]:
    """Every field, as `status.metrics[].name`. Labels are data, not fields."""
    if isinstance(value, dict) and at != "metadata.labels":
        for name, inner in value.items():
            path = f"{at}.{name}" if at else name
            yield path
            yield from paths_of_json(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of_json(inner, f"{at}[]")


def paths_of_model(model: type[BaseModel], at: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = f"{at}.{field.alias or name}" if at else (field.alias or name)
        yield path
        for inner, suffix in models_in(field.annotation):
            yield from paths_of_model(inner, path + suffix)


def models_in(annotation: Any, suffix: str = "") -> Iterator[tuple[type[BaseModel], str]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, suffix
    for inner in get_args(annotation):
        yield from models_in(inner, "[]" if annotation.__class__.__name__ == "GenericAlias" else suffix)
