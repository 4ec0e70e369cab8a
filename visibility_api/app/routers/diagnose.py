"""`RESOURCE/NAME/diagnose`: the last diagnosis with stacks, and a request for another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from visibility_api.app.dependencies import Caller, DiagnoseParts, Served
from visibility_api.app.documents import negotiated
from visibility_api.auth.identity import log_of
from visibility_api.errors.status import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ObjectNotFound,
    TooManyRequests,
    cause,
)
from visibility_api.errors.text import quote
from visibility_api.jobs.job import Phase, TrainingJob
from visibility_api.kubeapi.v1alpha1 import metadata_of, shown_diagnosis
from visibility_api.models.meta_v1 import StatusDetails
from visibility_api.models.served import GROUP_VERSION
from visibility_api.models.subresources import TrainJobDiagnosis
from visibility_api.models.wire import struct_of
from visibility_api.store import Entry

router = APIRouter(tags=["diagnose"])

PATH = f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{{resource}}/{{name}}/diagnose"
_IS_READ = "The ranks of the job are being read: status.diagnosis has the result within a minute."
_WOULD_BE = "The ranks of the job would be read; nothing was done (dryRun)."
_MAX_REPEATED, _MAX_REPEATED_CHARACTERS = 4, 50  # of values that are refused
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
    await parts.authorizer.authorize(caller, log_of(namespace))
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

    Raises Conflict, Forbidden, Invalid, ObjectNotFound, NotAcceptable, TooManyRequests, Unavailable.
    """
    # What is refused has had no effect, so the form of the answer comes first.
    is_dry = _is_dry_run(request.query_params.getlist("dryRun"))
    response = negotiated(request, _accepted(_WOULD_BE if is_dry else _IS_READ), headers={"Vary": "Accept"})
    response.status_code = 202
    document = _find(parts.find(resource.plural, namespace, name), resource.plural, name).document
    if not parts.is_on:
        raise Forbidden("This server reads no ranks: switch on its source exec (docs/diagnose.md).")
    if document.job.hints.source == "none":
        raise Forbidden("The job's annotation visibility.trainer.kubeflow.org/source switches probing off.")
    if document.job.runs_elsewhere:
        raise Conflict(
            f"The job runs in {document.job.place}, and its ranks can be read there. With a kubeconfig of"
            f" that cluster: kubectl create --raw {request.url.path} -f /dev/null"
        )
    if not _has_pods(document.job):
        raise Conflict(f"The job is {document.job.phase} and has no pods that could be read.")
    wait_s = await parts.request(document.job.ref) if not is_dry else 0.0
    if wait_s > 0:
        raise TooManyRequests(
            "the ranks of a job are read once a minute at most", retry_after_s=math.ceil(wait_s)
        )
    return response


def _has_pods(job: TrainingJob) -> bool:
    if job.phase is Phase.PENDING:
        return job.rank0 is not None  # which may wait for its image or its volume
    return not (job.phase.is_final or job.phase is Phase.SUSPENDED)


def _is_dry_run(given: Sequence[str]) -> bool:
    """As kube-apiserver reads it: apimachinery/pkg/apis/meta/v1/validation, validateDryRun."""
    if any(each != "All" for each in given):
        values = ", ".join(quote(each[:_MAX_REPEATED_CHARACTERS]) for each in given[:_MAX_REPEATED])
        fault = f'Unsupported value: []string{{{values}}}: supported values: "All"'
        raise Invalid(
            f'CreateOptions.meta.k8s.io "" is invalid: dryRun: {fault}',
            details=StatusDetails(
                group="meta.k8s.io",
                kind="CreateOptions",
                causes=(cause("FieldValueNotSupported", fault, "dryRun"),),
            ),
        )
    return bool(given)


def _accepted(message: str) -> bytes:
    status = {"status": "Success", "message": message, "code": 202}
    return msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, **status})


def _find(entry: Entry | None, plural: str, name: str) -> Entry:
    if entry is None:
        raise ObjectNotFound(plural, name)
    return entry
