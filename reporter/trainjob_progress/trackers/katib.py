"""Katib: a trial's metrics go to Katib's DB manager, as `report_metrics` of its SDK sends them (KEP-2340).

The messages are those of pkg/apis/manager/v1beta1/api.proto, written by hand: they have six fields.
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import grpc

from trainjob_progress.document import format_time

from . import Point, TrackerSink, encode_field

INTERVAL_S = 2.0
TIMEOUT_S = 4.0  # below END_S: the end of a trial tries once
METHOD = "/api.v1.beta1.DBManager/ReportObservationLog"
TRIAL_VARIABLE = "KATIB_TRIAL_NAME"  # Katib sets it, by the pod's label katib.kubeflow.org/trial
ADDRESS_VARIABLE = "TRAINJOB_PROGRESS_KATIB_ADDRESS"
CA_VARIABLE = "TRAINJOB_PROGRESS_KATIB_CA_CERT"  # a path; with it by TLS
TOKEN_VARIABLE = "TRAINJOB_PROGRESS_KATIB_TOKEN"  # a path, not the token
DEFAULT_ADDRESS = "katib-db-manager.kubeflow:6789"  # as the SDK has it


def find(environ: Mapping[str, str]) -> TrackerSink:
    trial = environ.get(TRIAL_VARIABLE)
    if not trial:
        raise LookupError(f"no {TRIAL_VARIABLE}: take it from the pod's label katib.kubeflow.org/trial")
    ca_path, token_path = environ.get(CA_VARIABLE), environ.get(TOKEN_VARIABLE)
    if token_path and not ca_path:
        raise ValueError(f"{TOKEN_VARIABLE} needs {CA_VARIABLE}: the token would travel in the clear")
    address = environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    return TrackerSink(DBManager(trial, address, ca_path, token_path), INTERVAL_S)


class DBManager:
    """A channel a call: gRPC's threads must not be there when the program forks."""

    def __init__(self, trial: str, address: str, ca_path: Optional[str], token_path: Optional[str]) -> None:
        self._trial, self._address = trial, address
        self._ca_path, self._token_path = ca_path, token_path

    def log(self, points: Sequence[Point]) -> None:
        logs = b"".join(
            encode_field(
                1, encode_field(1, format_time(point.unix_s)) + encode_field(2, _encode(name, value))
            )
            for point in points
            for name, value in point.values.items()
            if not name.startswith("system/")
        )
        if not logs:
            return
        metadata = []
        if self._token_path:
            with open(self._token_path, encoding="ascii") as file:  # the kubelet renews it
                metadata = [("authorization", f"Bearer {file.read().strip()}")]
        with self._open() as channel:
            report = channel.unary_unary(METHOD)
            request = encode_field(1, self._trial) + encode_field(2, logs)
            report(request, timeout=TIMEOUT_S, metadata=metadata)

    def end(self, ending: Optional[str]) -> None:
        """Katib takes that from the job."""

    def _open(self) -> grpc.Channel:
        if not self._ca_path:
            return grpc.insecure_channel(self._address)
        with open(self._ca_path, "rb") as file:
            return grpc.secure_channel(self._address, grpc.ssl_channel_credentials(file.read()))


def _encode(name: str, value: float) -> bytes:
    return encode_field(1, name) + encode_field(2, repr(value))
