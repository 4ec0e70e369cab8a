"""What is asked of the server, and when again: no I/O and no clock, so that both clients share it.

A flow is a generator. It yields a `Call`, and is sent its `Answer` or an `UnreachableError`; or it yields a
`Pause`. What it returns is the result.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, Dict, Generator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote

from .errors import ApiError, ClientError, UnreachableError, refusal

GROUP = "visibility.trainer.kubeflow.org"
PREFIX = f"/apis/{GROUP}/v1alpha1"
JSON = "application/json"
ALL_KINDS = "trainingjobs"
RECORDS = "jobrecords"

RETRIES = 5  # after the first try
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
_LONGEST_RETRY_AFTER_S = 120.0  # no server of ours says more; a client that sleeps for a day has ended
_TRANSIENT = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Call:
    """A GET."""

    path: str
    parameters: Sequence[Tuple[str, str]] = ()
    accept: str = JSON
    timeout_s: Optional[float] = None  # less than the connection's own


@dataclass(frozen=True)
class Answer:
    """What came back; names of headers are in lower case."""

    code: int
    body: bytes
    headers: Dict[str, str] = field(default_factory=dict)

    def check(self) -> "Answer":
        """Raises ApiError."""
        if self.code != 200:
            raise refusal(self.code, self.body, self.headers)
        return self

    def json(self) -> Any:
        """Raises ApiError, for instance where a login page of a proxy has come."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            text = "The answer is no JSON: is this the address of an API server?"
            raise ApiError(self.code, "Unknown", text) from error


@dataclass(frozen=True)
class Pause:
    """For so long nothing is sent."""

    seconds: float


Received = Union[Answer, UnreachableError, None]
T = TypeVar("T")
Flow = Generator[Union[Call, Pause], Received, T]


def path_of(resource: str, namespace: Optional[str] = None, name: str = "", subresource: str = "") -> str:
    """Of a list, or of one job. Without a namespace: of all."""
    parts = [PREFIX]
    if namespace is not None:
        parts += ["namespaces", quote(namespace, safe="")]
    parts += [quote(each, safe="") for each in (resource, name, subresource) if each]
    return "/".join(parts)


def selection(
    label_selector: Union[str, Mapping[str, str], None] = None, field_selector: Optional[str] = None
) -> List[Tuple[str, str]]:
    """The parameters that choose jobs. A mapping means equality."""
    if isinstance(label_selector, Mapping):
        label_selector = ",".join(f"{key}={value}" for key, value in label_selector.items())
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return [(key, value) for key, value in pairs if value]


def send(call: Call, retries: int = RETRIES) -> Flow[Answer]:
    """The answer with 200. Sent again after what may pass, as late as the server says.

    Raises ApiError, UnreachableError.
    """
    tried = 0
    while True:
        received = yield call
        if isinstance(received, Answer) and received.code == 200:
            return received
        failure = failure_of(received)
        pause = pause_after(failure, tried)
        if pause is None or tried >= retries:
            raise failure
        tried += 1
        yield pause


def failure_of(received: Received) -> Union[ApiError, UnreachableError]:
    """What an answer without 200 is raised as."""
    if isinstance(received, Answer):
        return refusal(received.code, received.body, received.headers)
    return received if isinstance(received, UnreachableError) else UnreachableError("The stream has ended.")


def is_transient(error: ClientError) -> bool:
    """Whether it may pass without anybody's doing."""
    return isinstance(error, UnreachableError) or (isinstance(error, ApiError) and error.code in _TRANSIENT)


def pause_after(failure: Union[ApiError, UnreachableError], tried: int) -> Optional[Pause]:
    """Before the next try: what the server says, else longer each time. None: another try brings the same."""
    if isinstance(failure, ApiError):
        if failure.code not in _TRANSIENT:
            return None
        if failure.retry_after_s is not None:  # spread, for all others are told the same
            return Pause(min(failure.retry_after_s, _LONGEST_RETRY_AFTER_S) * random.uniform(1.0, 1.1))
    return Pause(min(_FIRST_PAUSE_S * 2**tried, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0))


def find_resource(kind: str, discovered: Sequence[Mapping[str, Any]]) -> str:
    """The plural of a kind, short name or plural: of PyTorchJob, pytorchjob, tjp. Raises ValueError."""
    wanted = kind.lower().split(".")[0]
    plurals = [each["name"] for each in discovered if "/" not in each["name"]]
    for each in discovered:
        plural = each["name"]
        names = {plural, each.get("singularName", ""), *(each.get("shortNames") or ())}
        names |= {name[: -len("progress")] for name in list(names) if name.endswith("progress")}
        if "/" not in plural and wanted in names:
            return str(plural)
    raise ValueError(f"This cluster serves no {kind!r}; it serves {', '.join(sorted(plurals))}.")
