"""What reads the past of a job: queries for it, stored and forwarded states, and earlier values.

As in `targets`, each is a function of bytes that fails when a parser does what it must not.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from datetime import timedelta

import msgspec

from tests.jobs import JOB, REF, T0, document
from tests.past import Past
from visibility_api.app.routers.history import _instant, read_moment
from visibility_api.history.job_history import JobHistory, restore as restore_columns
from visibility_api.history.view import Selection, select
from visibility_api.jobs.memory import (
    restore_history,
    restore_points,
    save_history,
)
from visibility_api.jobs.record import State
from visibility_api.jobs.summary import JobProgress
from visibility_api.jobs.tracker import Tracker
from visibility_api.kinds.trainjob import TrainJobKind
from visibility_api.kubeapi.history import encode_csv, encode_json, encode_ndjson
from visibility_api.kubeapi.v1alpha1 import Codec
from visibility_api.replication.frames import BadFrame, FrameReader
from visibility_api.reports.document import Progress, Refusal
from visibility_api.reports.fields import EARLIEST, LATEST, MAX_METRICS, MAX_POINTS
from visibility_api.reports.points import read_recent
from visibility_api.reports.refusals import parse_json
from visibility_api.store import Entry

_PAST = Past()
_ALL = Selection(metrics=None, since_s=None, until_s=None, max_points=None, attempt=None)
_CODEC = Codec(TrainJobKind.served)
_NOW = T0 + timedelta(hours=2)
_ENTRY = Entry(document=document(), revision=1)


def history_query(data: bytes) -> None:
    """The instant since which a history is requested, and what is chosen by it."""
    try:
        moment = read_moment(data.decode("latin-1"))
    except ValueError:
        return
    _show(_PAST.history, replace(_ALL, since_s=_instant(moment, _PAST.now)))


def saved_state(data: bytes) -> None:
    """A row of the data directory, or what the owner of the log sends: what it holds is evaluated and
    shown."""
    reader = FrameReader()
    try:
        for _ in reader.feed(data):
            pass
    except BadFrame:
        pass
    restore_points(data)
    published: list[JobProgress] = []
    tracker = Tracker(
        publish=published.append,
        retract=lambda _ref: None,
        now=lambda: _NOW,
        interval_s=15.0,
        recall=lambda _ref: (data, None),
    )
    tracker.job_changed(JOB)
    tracker.review(1.0)
    for each in published:
        msgspec.json.decode(_CODEC.document(Entry(document=each, revision=1)))
    again = tracker.state(REF)
    assert again is not None
    msgspec.msgpack.decode(again, type=State)


def saved_history(data: bytes) -> None:
    """The same of a history, which goes on."""
    history = restore_columns(zlib.compress(data))
    if history is None:
        return
    _show(history, _ALL)
    history.add(
        "p1/0/0",
        Progress(timestamp=_NOW, step=7, metrics=(("loss", "0.5"),)),
        continues=True,
        reported_at=_NOW,
        ahead_s=0.0,
    )
    _show(history, _ALL)
    assert restore_history(save_history(REF, history)) is not None


def recent(data: bytes) -> None:
    """Earlier values that come with a report."""
    try:
        parsed = parse_json(data)
    except Refusal:
        return
    points = read_recent(parsed, T0)
    assert len(points) <= MAX_POINTS
    for point in points:
        assert EARLIEST <= point.timestamp <= LATEST
        assert len(point.metrics) <= MAX_METRICS
    assert [point.timestamp for point in points] == sorted(point.timestamp for point in points)


def _show(history: JobHistory, selection: Selection) -> None:
    """It can be shown in every form."""
    view = select(history, selection, now_s=_NOW.timestamp())
    msgspec.json.decode(encode_json(TrainJobKind.served, _ENTRY, view))
    for line in encode_ndjson(view).splitlines():
        msgspec.json.decode(line)
    encode_csv(view)
