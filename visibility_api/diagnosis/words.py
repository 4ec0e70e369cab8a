"""The words of a diagnosis: what a rank does, as a clause, and what to do about it. All are our own."""

from __future__ import annotations

import re

from .reading import RankState

STATES = {  # by RankState.state: reason, what it is, what to do
    "ended": ("ProcessEnded", "has ended", "Read its log, and restart the job: others wait in vain."),
    "over": (
        "RankFinished",
        "has finished its run",
        "Give every rank the same number of steps: the others wait for one more.",
    ),
    "stopped": ("ProcessStopped", "is stopped by a signal", "Send it SIGCONT, or delete its pod."),
    "storage": (
        "WaitsForStorage",
        "waits for storage that does not answer",
        "Check the volumes of its pod and its node.",
    ),
    "held": (
        "GilHeld",
        "runs C code that holds the interpreter's lock",
        "Check the library that its stack calls; delete its pod if it does not return.",
    ),
}  # fmt: skip
HINTS = {
    "InDataLoader": "Check its data: volume, network and the loader's worker processes.",
    "InCheckpoint": "Check the volume that checkpoints are written to.",
    "Compiling": "Wait for it, or compile on every rank alike.",
    "WaitsForNetwork": "Check the service that it calls, and its node's network.",
    "WaitsForLocal": "Check its worker processes and threads.",
    "InOwnCode": "Check what its code does there; every rank has to call the same collectives.",
    "Sleeps": "Check what its code does there; every rank has to call the same collectives.",
    "InBackward": "Check its accelerator and its node.",
    "WaitsForDevice": "Check its accelerator and its node.",
    "InCollective": "Check the network between the nodes; a time limit of the library ends the wait.",
    "CollectiveMismatch": "Check that every rank calls the same collectives in the same order.",
    "InRendezvous": "Check that all replicas run, and reach each other.",
    "PodNotRunning": "Check the pod's Events.",
    "Behind": "Check its node and its data; every rank has to make the same steps.",
}


def where_of(state: RankState) -> str:
    """As a clause without a subject."""
    if state.state:
        return STATES[state.state][1]
    if state.frames:
        return f"is in {state.place.where}"
    if state.call:
        return f"waits for {state.call}"
    return "computes" if state.is_busy else "sleeps" if state.is_busy is False else "is not known"


def span(longest_s: float) -> str:
    """` for 6 min`; nothing for less than a second."""
    seconds = int(longest_s)
    if seconds < 1:
        return ""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f" for {seconds // unit} {name}"
    return f" for {seconds // 86400} days"


_OF_ONE = re.compile(r"\bits\b")
_PLURALS = {
    "is": "are",
    "has": "have",
    "waits": "wait",
    "runs": "run",
    "computes": "compute",
    "sleeps": "sleep",
}


def plural(clause: str) -> str:
    """The clause of several ranks."""
    verb, space, rest = clause.partition(" ")
    return f"{_PLURALS.get(verb, verb)}{space}{_OF_ONE.sub('their', rest)}"
