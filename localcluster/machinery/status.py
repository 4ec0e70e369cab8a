"""Refusals, worded as kube-apiserver words them (apimachinery/pkg/api/errors)."""

from __future__ import annotations

from typing import Any

from localcluster.machinery.resources import Resource


class ApiError(Exception):
    """An answer that is a metav1.Status; `code` is also the HTTP status."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def body(self) -> dict[str, Any]:
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status |= {"message": str(self), "reason": self.reason}
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}


def _details(resource: Resource, name: str) -> dict[str, Any]:
    named = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in named.items() if value}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_route() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unsupported_patch_type() -> ApiError:
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def patch_does_not_apply() -> ApiError:
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def unsupported_media_type(accepted: str) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(resource: Resource, name: str, field: str, problem: str) -> ApiError:
    """422. `problem` is `Required value: …`, `Invalid value: …`, `Unsupported value: …` or `Forbidden: …`."""
    reason = {"Unsupported": "NotSupported"}.get(word := problem.split(":")[0].split()[0], word)
    causes = [{"reason": f"FieldValue{reason}", "message": problem, "field": field}]
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}
    message = f'{qualified} "{name}" is invalid: {field}: {problem}'
    return ApiError(422, "Invalid", message, {key: value for key, value in details.items() if value})


def invalid_list_options(field: str, problem: str) -> ApiError:
    options = Resource(group="meta.k8s.io", plural="listoptions", kind="ListOptions")
    return invalid(options, "", field, problem)


def too_large_version(asked: int, current: int) -> ApiError:
    message = f"Too large resource version: {asked}, current: {current}"
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    return ApiError(504, "Timeout", f"Timeout: {message}", details | {"retryAfterSeconds": 1})
