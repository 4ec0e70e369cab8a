"""`RESOURCE/NAME/diagnose`: the last diagnosis with stacks, and a request for another."""

from __future__ import annotations

import math
from typing import Any, cast

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from visibility_api.app.dependencies import Caller, DiagnoseParts, Served
from visibility_api.app.documents import negotiated
from visibility_api.auth.identity import Attributes
from visibility_api.errors.status import Forbidden, NotFound, ObjectNotFound, TooManyRequests
from visibility_api.kubeapi.v1alpha1 import metadata_of, shown_diagnosis
from visibility_api.models.served import GROUP_VERSION
from visibility_api.models.subresources import TrainJobDiagnosis
from visibility_api.models.wire import struct_of
from visibility_api.store import Entry

router = APIRouter(tags=["diagnose"])

PATH = f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{{resource}}/{{name}}/diagnose"
_ACCEPTED = msgspec.json.encode(
    {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "message": "The ranks of the job are being read: status.diagnosis has the result within a minute.",
        "code": 202,
    }
)
_TrainJobDiagnosis = struct_of(TrainJobDiagnosis)


@router.api_route(
    PATH, methods=["GET", "HEAD"], response_model=TrainJobDiagnosis, response_model_exclude_none=True
)
async def diagnosis(
    request: Request, caller: Caller, parts: DiagnoseParts, namespace: str, resource: Served, name: str
) -> Response:
    """The last one, for callers with the right to get pods/log in the namespace as well.

    Raises AccessDenied, NotFound, NotAcceptable.
    """
    entry = _find(parts.find(resource.plural, namespace, name), resource.plural, name)
    # The chain has checked the right to this subresource. Stacks are of all pods, so is this right.
    await parts.authorizer.authorize(caller, _right(namespace))
    found = entry.document.diagnosis
    if found is None:
        raise NotFound(
            "The ranks of the job were not read yet: that happens when it stalls, or at a POST here."
        )
    shown = _TrainJobDiagnosis(
        kind=cast(Any, resource.subresource("diagnose").kind),
        api_version="visibility.trainer.kubeflow.org/v1alpha1",
        metadata=metadata_of(entry),
        diagnosis=shown_diagnosis(found, has_frames=True),
    )
    return negotiated(request, msgspec.json.encode(shown), headers={"Vary": "Accept"})


@router.post(PATH, status_code=202)
async def diagnose(
    request: Request, parts: DiagnoseParts, namespace: str, resource: Served, name: str
) -> Response:
    """Has the ranks of the job read now; the document has what was found within a minute. A body is ignored.

    Raises Forbidden, ObjectNotFound, NotAcceptable, TooManyRequests, Unavailable.
    """
    document = _find(parts.find(resource.plural, namespace, name), resource.plural, name).document
    if not parts.is_on:
        raise Forbidden("This server reads no ranks: switch on its source exec (docs/diagnose.md).")
    if document.job.phase.is_final or document.job.runs_elsewhere:
        raise NotFound("The job has no pods here that run.")
    if document.job.hints.source == "none":
        raise Forbidden("The job's annotation visibility.trainer.kubeflow.org/source switches probing off.")
    wait_s = await parts.request(document.job.ref)
    if wait_s > 0:
        raise TooManyRequests(
            "the ranks of a job are read once a minute at most", retry_after_s=math.ceil(wait_s)
        )
    response = negotiated(request, _ACCEPTED, headers={"Vary": "Accept"})
    response.status_code = 202
    return response


def _find(entry: Entry | None, plural: str, name: str) -> Entry:
    if entry is None:
        raise ObjectNotFound(plural, name)
    return entry


def _right(namespace: str) -> Attributes:
    """To read the log of any pod of the namespace."""
    return Attributes(
        verb="get",
        path=f"/api/v1/namespaces/{namespace}/pods",
        is_resource=True,
        version="v1",
        resource="pods",
        subresource="log",
        namespace=namespace,
    )
