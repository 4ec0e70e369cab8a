"""The server-side apply of one summary to the status of a job."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from visibility_api.jobs.job import JobRef
from visibility_api.kinds import own_objects
from visibility_api.kube.client import KubeClient
from visibility_api.kube.decoding import decode
from visibility_api.kube.errors import ClusterError
from visibility_api.reports.trainer_status import TrainerStatus

FIELD_MANAGER = "trainjob-visibility"
# Not forced: fields that Kubeflow Trainer's own manager, `trainer-status`, has written stay as they are.
_QUERY = (("fieldManager", FIELD_MANAGER), ("force", "false"))
_HEADERS = {
    "Content-Type": "application/apply-patch+yaml",  # JSON is YAML
    "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
}


class _Meta(msgspec.Struct):
    uid: str = ""


class _Written(msgspec.Struct):
    metadata: _Meta


_WRITTEN = msgspec.json.Decoder(_Written)


class StatusClient:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def apply(self, ref: JobRef, summary: TrainerStatus | None) -> str:
        """Write the summary, or remove ours; the uid of the job that was written. Raises ClusterError."""
        objects = own_objects(ref.resource)
        body: dict[str, object] = {
            "apiVersion": objects.api_version,
            "kind": objects.kind,
            "metadata": {"namespace": ref.namespace, "name": ref.name},
        }
        if summary is not None:  # an empty status may be refused: the CRD's has `minProperties: 1`
            body["status"] = {"trainerStatus": summary}
        path = f"{objects.in_namespace(ref.namespace)}/{ref.name}/status"
        response = await self._client.patch(path, msgspec.json.encode(body), query=_QUERY, headers=_HEADERS)
        return (await decode(_WRITTEN, response)).metadata.uid

    async def withdraw(self, ref: JobRef) -> bool:
        """Remove the fields of the status that only this manager owns; whether that succeeded."""
        with suppress(ClusterError, msgspec.MsgspecError):
            await self.apply(ref, None)
            return True
        return False
