"""The checks of /livez and /readyz: which parts of this replica work, and what each says of a fault.

A part without which jobs are served all the same never fails its check: its fault is a note.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from visibility_api.app.health import Check
from visibility_api.certificates.expiry import Expiry
from visibility_api.kinds import BUILT_IN
from visibility_api.kinds.described.table import KindTable
from visibility_api.ownership import OwnersTerm
from visibility_api.replication.nats_follower import NOT_READ
from visibility_api.replication.role import Others, Role
from visibility_api.rights import Rights
from visibility_api.store.job_log import JobLog
from visibility_api.store.state_writer import StateWriter

CLOCK_S = 60.0  # an answer may have been on its way for long
MAX_FAULTS = 4  # of described kinds, and of lists, that /readyz?verbose names
OUT_OF_SYNC_S = 60.0  # a replica that could not follow the owner for so long is not ready
STUCK_S = 60.0  # a loop without an iteration for so long is stuck: liveness fails


def _note(name: str, note: Callable[[], str | None], run: Callable[[], str | None] = lambda: None) -> Check:
    return Check(name=name, run=run, note=note, is_readiness_only=True)


def lasting_checks(
    jobs: JobLog, role: Role[OwnersTerm], stopping: asyncio.Event, table: KindTable
) -> list[Check]:
    def unknown() -> str | None:
        if jobs.is_complete or why_nobody_owns() is not None:
            return None
        if role.term is None:
            return "the jobs are not known yet: no replica that owns them is followed"
        return f"not listed yet: {', '.join(role.term.untried)}"

    def out_of_sync() -> str | None:
        # Documents that stand still would look like jobs that do. Other replicas serve what is true now.
        lost_s = role.out_of_sync_s
        return f"the owner was last followed {lost_s:.0f}s ago" if lost_s > OUT_OF_SYNC_S else None

    def why_nobody_owns() -> str | None:
        # Discovery is served all the same: an aggregated API that is not ready blocks deleting namespaces.
        if role.term is not None or role.owner is not None or role.others is None:
            return None
        if fault := role.others.lease.fault:
            return f"no replica owns the jobs; the Lease: {fault}"
        why = role.others.follower.fault
        if why in (None, NOT_READ) or role.others.lease.is_anothers:
            return None
        return f"no replica owns the jobs: {why}"

    def why_unanswered() -> str | None:
        if (why := why_nobody_owns()) is not None or not jobs.unlisted:
            return why
        paths = (
            ", ".join(role.term.unlisted[:MAX_FAULTS])
            if role.term is not None
            else "see the owner of the jobs"
        )
        return f"lists are answered 503, not listed: {paths}"

    def stuck() -> str | None:
        if role.working is None or not role.working.prober.last_turn:
            return None
        age_s = asyncio.get_running_loop().time() - role.working.prober.last_turn
        return f"the probe loop has been stuck for {age_s:.0f}s" if age_s > STUCK_S else None

    def down(collection: str) -> str | None:
        return role.working.why_down(collection) if role.working is not None else None

    def misdescribed() -> str | None:
        watched = (
            down(each.plural) for each in table.now.resources if each.plural not in BUILT_IN.by_resource
        )
        return "; ".join([*table.faults[:MAX_FAULTS], *filter(None, watched)]) or None

    required = BUILT_IN.required
    return [
        *(Check(name=f"watch-{each}", run=partial(down, each), is_readiness_only=True) for each in required),
        # One of these costs its kind alone.
        *(
            _note(f"watch-{each}", partial(down, each))
            for each in BUILT_IN.collections
            if each not in required
        ),
        _note("described-kinds", misdescribed),
        _note("informer-sync", why_unanswered, unknown),
        Check(name="owner-followed", run=out_of_sync, is_readiness_only=True),
        Check(name="probe-loop", run=stuck),
        Check(
            name="shutdown",
            run=lambda: "the server is shutting down" if stopping.is_set() else None,
            is_readiness_only=True,
        ),
    ]


def clock_check(ahead_s: Callable[[], float]) -> Check:
    def note() -> str | None:
        ahead = ahead_s()
        if abs(ahead) < CLOCK_S:
            return None
        way = "ahead of" if ahead > 0 else "behind"
        differs = f"it is {abs(ahead) / 60:.0f} minutes {way} kube-apiserver's"
        return f"{differs}, so ages are wrong: synchronise this node (NTP)"

    return _note("clock", note)


def certificate_check(expiry: Expiry, fault: Callable[[], str | None]) -> Check:
    return _note("serving-certificate", lambda: expiry.note() or fault(), expiry.failure)


def rights_check(role: Role[OwnersTerm], rights: Rights) -> Check:
    return _note("rights", lambda: rights.missing, RightsFirst(role, rights).failure)


def data_check(writer: StateWriter) -> Check:
    def note() -> str | None:
        return None if writer.fault is None else f"state is kept in memory only: {writer.fault}"

    return _note("data-dir", note)


def store_check(role: Role[OwnersTerm], others: Others) -> Check:
    """What is known is served without it, and says how old it is."""

    def note() -> str | None:
        if (fault := others.streams.fault) is not None:
            return f"the log of the jobs cannot be written, pushes are answered 503: {fault}"
        if role.term is None and (fault := others.follower.fault) is not None:
            return f"the log of the jobs cannot be read: {fault}"
        return None

    return _note("store", note)


def archive_check(role: Role[OwnersTerm]) -> Check:
    def note() -> str | None:
        keeper = role.term.keeper if role.term is not None else None
        if keeper is None or keeper.fault is None:
            return None
        return f"{len(keeper)} jobs wait for the archive: {keeper.fault}"

    return _note("archive", note)


def upstreams_check(role: Role[OwnersTerm]) -> Check:
    """What was seen there is served with its age."""

    def note() -> str | None:
        upstreams = role.term.upstreams if role.term is not None else None
        return "; ".join(upstreams.faults) or None if upstreams is not None else None

    return _note("upstreams", note)


class RightsFirst:
    """A replica that comes while another one owns the jobs is ready when it has its rights: until then the
    others serve better. What was ready once, or owns the jobs, stays ready: it may be the only one."""

    def __init__(self, role: Role[OwnersTerm], rights: Rights) -> None:
        self._role, self._rights = role, rights
        self._was_ready = False

    def failure(self) -> str | None:
        if self._role.term is not None or self._role.others is None:
            self._was_ready = True
        elif not self._was_ready and self._role.owner is not None:
            if not self._rights.is_known:
                return "the rights of the service account are not reviewed yet"
            self._was_ready = self._rights.missing is None
            return self._rights.missing
        return None
