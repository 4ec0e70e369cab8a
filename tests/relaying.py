"""For tests of relayed pushes: a stand-in for another replica, and a running relay."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import structlog

from tests.certificates import Authority, Certificate
from tests.pushing import BODY, UPSTREAM
from tests.service.tls_server import DEADLINE_S, until
from visibility_api.flowcontrol.token_bucket import Bucket
from visibility_api.pushing.admission import Grant
from visibility_api.pushing.ownership import Membership
from visibility_api.pushing.peer import PeerLimits
from visibility_api.pushing.relayed import RelayedPush, decode_pushes
from visibility_api.pushing.replication import Relay, RelayLimits

SERVING = Authority("serving")
OURS = SERVING.issue("visibility-api", usages=[], hosts=["127.0.0.1"])
# The same names, of the same CA: all that a client usually looks at.
IMPOSTOR = SERVING.issue("visibility-api", usages=[], hosts=["127.0.0.1"])
PROOF = "s3cr3t-proof"
PATH = UPSTREAM.format("team-a", "bert")
OWN_PORT = 1  # where nobody listens
# Machines may be slow; a response that is held back stays so. Names are resolved again at once.
PATIENT = RelayLimits(resolve_interval_s=0.01, last_s=0.0, peer=PeerLimits(gather_s=0.0, timeout_s=60.0))


def answer(refused: int = 0, *, status: bytes = b"200 OK") -> bytes:
    body = msgspec.json.encode({"refused": refused})
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def grant(pod: str = "pod-1", until: float = 0.0) -> Grant:
    member = Membership(job_uid="job-1", pod_name=f"name-of-{pod}", pod_uid=pod, restart_attempt=0)
    bucket = Bucket(per_s=1.0, burst=1.0, now=0.0)
    return Grant(credential=b"hash", membership=member, bucket=bucket, until=until)


def der(certificate: Certificate) -> bytes:
    return certificate.chain[0]


class Replica:
    """A stand-in for another replica: what it was sent, and on how many connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.lengths: list[int] = []  # of their bodies
        self.batches: list[list[RelayedPush]] = []  # of each request
        self.ended: list[bytes] = []  # of each connection that has ended, what came after the last request
        self.answer = answer()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.port = 0

    @property
    def pushes(self) -> list[RelayedPush]:
        return [push for batch in self.batches for push in batch]

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serving(self, certificate: Certificate, directory: Path) -> AsyncIterator[None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate.write(directory, f"replica-{id(certificate)}"))
        server = await asyncio.start_server(self._talk, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append(head)
                self.lengths.append(length)
                self.batches.append(decode_pushes(body))
                await self.may_answer.wait()
                writer.write(self.answer)
        except asyncio.IncompleteReadError as error:
            self.ended.append(error.partial)
        except OSError:
            self.ended.append(b"")
        finally:
            writer.transport.abort()


def peer_limits(**changes: float) -> RelayLimits:
    return replace(PATIENT, peer=replace(PATIENT.peer, **changes))  # type: ignore[arg-type]  # some are int


@dataclass(slots=True, kw_only=True)
class Relaying:
    """A relay that runs, and what it counts; `certificate` is the one that it serves with."""

    peers: Sequence[str]
    certificate: Certificate = OURS
    port: int = OWN_PORT
    limits: RelayLimits = PATIENT
    outcomes: Counter[str] = field(default_factory=Counter)
    relay: Relay = field(init=False)

    def __post_init__(self) -> None:
        self.relay = Relay(
            tuple(self.peers),
            port=self.port,
            certificate=lambda: der(self.certificate),
            proof=lambda: PROOF,
            count=lambda outcome, pushes: self.outcomes.update({outcome: pushes} if pushes else {}),
            limits=self.limits,
        )

    def push(self, body: bytes = BODY, *, pod: str = "pod-1") -> None:
        self.relay.pushed(PATH, grant(pod), "attempt-1", body)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Relaying]:
        """Once the peers are known."""
        with structlog.testing.capture_logs() as logged:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self.relay.run())
                names = sum(":" in each for each in self.peers)
                await until(lambda: sum(e["event"] == "peer found" for e in logged) >= names)
                yield self
                task.cancel()
        assert PROOF not in str(logged)


async def pushed_until(relay: Relaying, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            relay.push()
            await asyncio.sleep(0.01)
