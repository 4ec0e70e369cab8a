"""Which ranks are at the same place, and which of them the others wait for. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from visibility_api.errors.text import harmless

from .claims import PodState, Seen, believe, is_complete
from .evidence import is_hang, weigh
from .places import COLLECTIVE, PERHAPS
from .result import MAX_FRAMES, MAX_GROUPS, MAX_SUSPECTS, Diagnosis, Group, Suspect, as_ranges
from .words import HINTS, STATES, plural, span, where_of

MAX_NAMED = 3  # suspects in the sentence
MOST = 0.5  # of the ranks, which others are outside of


NOT_READABLE = "NotReadable"


def diagnose(pods: Sequence[PodState], at: datetime, *, is_requested: bool = False) -> Diagnosis:
    """What the pods of one job have said, as one value."""
    seen = believe(pods)
    unread = len(pods) - len({id(each.pod) for each in seen})
    is_whole = unread == 0 and is_complete(seen, len(pods))
    groups = _grouped(seen)
    reason, message, hint, suspects = _judge(seen, pods, is_whole=is_whole)
    absent = [_of_absent(pod) for pod in pods if pod.not_running and reason != "PodNotRunning"]
    kept = groups[:MAX_GROUPS]
    shows, says = weigh(seen, is_whole=is_whole)
    return Diagnosis(
        at=at,
        reason=reason,
        message=harmless(message),
        hint=hint,
        groups=tuple([_group(each) for each in kept]),
        suspects=(*suspects, *absent)[:MAX_SUSPECTS],
        read=len(seen),
        others=len(seen) - sum(map(len, kept)),
        unread=unread,
        is_requested=is_requested,
        is_hang=is_whole and is_hang(seen),
        shows=shows,
        evidence=says,
    )


def _grouped(seen: Iterable[Seen]) -> list[list[Seen]]:
    """By equal state and stack, the largest first."""
    by_key: dict[tuple[str, ...], list[Seen]] = defaultdict(list)
    for each in seen:
        by_key[each.key].append(each)
    return sorted(by_key.values(), key=len, reverse=True)


def _group(members: Sequence[Seen]) -> Group:
    state = members[0].state
    return Group(
        count=len(members),
        ranks=as_ranges([each.rank for each in members if each.rank is not None]),
        where=where_of(state),
        frames=state.frames[:MAX_FRAMES],
    )


_Judged = tuple[str, str, str, tuple[Suspect, ...]]


def _judge(seen: Sequence[Seen], pods: Sequence[PodState], *, is_whole: bool) -> _Judged:
    """Reason, sentence, hint and suspects: what is certain first."""
    absent = [pod for pod in pods if pod.not_running]
    silent = [pod for pod in pods if pod.unread]
    if absent and not seen:
        return _absent(seen, absent)
    if not seen:
        why = Counter(pod.unread for pod in silent).most_common(1)
        said = why[0][0] if why else "no pod has a process of Python, and no rank has written a file"
        return NOT_READABLE, f"No rank could be read: {said}.", "", ()
    for state, (reason, says, hint) in STATES.items():
        found = [each for each in seen if each.state.state == state]
        is_of_all = state in ("over", "storage") and len(found) > MOST * len(seen)
        if found and not is_of_all:
            return _blame(reason, found, says, hint, seen)
    waiting, outside = _waiting(seen)
    if waiting and outside:
        first = min([each for each in outside if each.state.frames] or outside, key=_behind).state
        found = sorted(outside, key=lambda each: where_of(each.state) != where_of(first))
        reason = first.place.reason
        if first.frames or not absent:
            return _blame(reason, found, where_of(first), HINTS.get(reason, ""), seen)
    if absent:
        return _absent(seen, absent)
    if waiting and silent:
        return _unread(seen, silent)
    judged = _behind_others(seen) or (_mismatch(seen) if waiting else None)
    return judged or _no_suspect(seen, is_whole=is_whole)


def _waiting(seen: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """Those that wait for others, and those that they may wait for."""
    for kinds in ((COLLECTIVE,), (COLLECTIVE, PERHAPS)):
        waiting = [each for each in seen if each.state.place.kind in kinds]
        if len(waiting) >= MOST * len(seen):
            return waiting, [each for each in seen if each.state.place.kind not in kinds]
    return [], []


def _mismatch(seen: Sequence[Seen]) -> _Judged | None:
    """Those that wait in another collective than most."""
    (most, _), *others = Counter(each.state.place.where for each in seen).most_common()
    if not others:
        return None
    found = [each for each in seen if each.state.place.where != most]
    return _blame("CollectiveMismatch", found, where_of(found[0].state), HINTS["CollectiveMismatch"], seen)


def _no_suspect(seen: Sequence[Seen], *, is_whole: bool) -> _Judged:
    """What most do, where none stands out."""
    by_place: dict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        by_place[where_of(each.state)].append(each)
    most, *others = sorted(by_place.values(), key=len, reverse=True)
    state = most[0].state
    is_most = state.frames and len(most) > MOST * len(seen)
    reason = state.place.reason if is_most else "NotKnown"
    who = f"{'' if others else 'All '}{len(most)} {_ranks(most)}" if len(seen) > 1 else _begin(_name(most[0]))
    if len(seen) > 1 and not (others or is_whole):
        who += " that were read"
    does = f"{who} {where_of(state) if len(most) == 1 else plural(where_of(state))}{_for(most)}"
    also = [
        f"{len(each)} {where_of(each[0].state) if len(each) == 1 else plural(where_of(each[0].state))}"
        for each in others[: MAX_NAMED - 1]
    ]
    if left := sum(map(len, others[MAX_NAMED - 1 :])):
        also.append(f"{left} {'does' if left == 1 else 'do'} something else")
    return reason, f"{'; '.join([does, *also])}.", HINTS.get(reason, ""), ()


def _absent(seen: Sequence[Seen], absent: Sequence[PodState]) -> _Judged:
    names = ", ".join(f"{pod.name}{_at(pod)}" for pod in absent[:MAX_NAMED])
    more = f" and {len(absent) - MAX_NAMED} more" if len(absent) > MAX_NAMED else ""
    what = "Pod" if len(absent) == 1 else "Pods"
    verb = "is" if len(absent) == 1 else "are"
    message = f"{what} {names}{more} {verb} not running ({absent[0].not_running}){_rest(seen, ())}."
    suspects = tuple([_of_absent(pod) for pod in absent[:MAX_SUSPECTS]])
    return "PodNotRunning", message, HINTS["PodNotRunning"], suspects


def _of_absent(pod: PodState) -> Suspect:
    return Suspect(pod_name=pod.name, node_name=pod.node_name, reason="PodNotRunning")


def _unread(seen: Sequence[Seen], silent: Sequence[PodState]) -> _Judged:
    names = ", ".join(f"{pod.name}{_at(pod)}" for pod in silent[:MAX_NAMED])
    more = f" and {len(silent) - MAX_NAMED} more" if len(silent) > MAX_NAMED else ""
    message = f"Of {names}{more} nothing was read: {silent[0].unread}{_rest(seen, ())}."
    suspects = [Suspect(pod_name=pod.name, node_name=pod.node_name, reason=NOT_READABLE) for pod in silent]
    return NOT_READABLE, message, "", tuple(suspects[:MAX_SUSPECTS])


def _blame(reason: str, found: Sequence[Seen], says: str, hint: str, seen: Sequence[Seen]) -> _Judged:
    first = where_of(found[0].state)
    found = sorted(found, key=lambda each: (where_of(each.state) != first, *_behind(each)))
    named = [each for each in found if where_of(each.state) == first]
    names = ", ".join(_name(each) for each in named[:MAX_NAMED])
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    clause = says if len(named) == 1 else plural(says)
    since = "" if reason in ("ProcessEnded", "RankFinished") else _for(named)
    message = f"{_begin(names)}{more} {clause}{since}{_rest(seen, found)}."
    suspects = [
        Suspect(
            pod_name=each.pod.name,
            node_name=each.pod.node_name,
            reason=reason,
            rank=each.rank,
            step=each.state.step,
        )
        for each in found[:MAX_SUSPECTS]
    ]
    return reason, message, hint, tuple(suspects)


def _rest(seen: Sequence[Seen], found: Sequence[Seen]) -> str:
    """What the others do: `; 63 ranks wait for it in all_reduce`."""
    named = {id(each.state) for each in found}
    others = [each for each in seen if id(each.state) not in named]
    waiting = [each for each in others if each.state.place.kind in (COLLECTIVE, PERHAPS)]
    if waiting:
        (where, number), *_ = Counter(each.state.place.where for each in waiting).most_common()
        verb = "waits" if number == 1 else "wait"
        for_whom = "it" if len(found) == 1 else "them" if found else "others"
        return f"; {number} {_ranks(waiting[:number])} {verb} for {for_whom} in {where}"
    if others:
        return f"; {len(others)} other {_ranks(others)} {'was' if len(others) == 1 else 'were'} read"
    return ""


def _behind_others(seen: Sequence[Seen]) -> _Judged | None:
    """Where fewer than half have finished fewer steps."""
    steps = [each.state.step for each in seen if each.state.step is not None]
    if not steps or min(steps) == max(steps):
        return None
    found = [each for each in seen if each.state.step == min(steps)]
    if len(found) >= MOST * len(seen):
        return None
    return _blame(
        "Behind", found, f"is behind (step {min(steps)}, others {max(steps)})", HINTS["Behind"], seen
    )


def _behind(each: Seen) -> tuple[int, int]:
    """The lowest step first, then the lowest rank."""
    step, rank = each.state.step, each.rank
    return (1 << 62) if step is None else step, (1 << 62) if rank is None else rank


def _name(each: Seen) -> str:
    if each.rank is None:
        return f"a process of pod {each.pod.name}{_at(each.pod)}"
    return f"rank {each.rank}{_at(each.pod) or f' ({each.pod.name})'}"


def _begin(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _at(pod: PodState) -> str:
    return f" ({pod.node_name})" if pod.node_name else ""


def _ranks(seen: Sequence[Seen]) -> str:
    what = "process" if all(each.rank is None for each in seen) else "rank"
    return what if len(seen) == 1 else "processes" if what == "process" else "ranks"


def _for(found: Sequence[Seen]) -> str:
    """For how long the one that has been there longest has."""
    return span(max((each.state.for_s or 0.0 for each in found), default=0.0))
