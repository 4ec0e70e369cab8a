"""Reviews of identity and rights: TokenReview, the access reviews, TokenRequest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from localcluster.apiserver.identity import API_AUDIENCES, Authenticator, User, authenticated
from localcluster.apiserver.rbac import Attributes, Authorizer
from localcluster.machinery.metadata import Object, timestamp
from localcluster.machinery.resources import Resource
from localcluster.machinery.status import ApiError, invalid


def token_review(authenticator: Authenticator, body: Object) -> Object:
    """A16: the requested audiences that the token has; when none is requested, those of this server."""
    spec = body.get("spec") or {}
    audiences = spec.get("audiences") or list(API_AUDIENCES)
    found = authenticator.review(str(spec.get("token", "")), audiences)
    if found is None or not found[1]:
        status: Object = {"user": {}, "error": "invalid bearer token"}
        return body | {"spec": {"audiences": audiences}, "status": status}
    user, matching = found
    status = {"authenticated": True, "user": authenticated(user).as_json(), "audiences": matching}
    return body | {"status": status}


def token_request(authenticator: Authenticator, account: Object, body: Object) -> Object:
    spec = body.get("spec") or {}
    token, expires_at = authenticator.issue(account, spec)
    status = {"token": token, "expirationTimestamp": timestamp(datetime.fromtimestamp(expires_at, UTC))}
    kind = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
    return kind | {"metadata": {"creationTimestamp": None}, "spec": spec, "status": status}


def access_review(
    authorizer: Authorizer, body: Object, user: User | None = None, namespace: str = ""
) -> Object:
    """Any of the three access reviews; `user` is who sent a self review."""
    spec: dict[str, Any] = body.get("spec") or {}
    if user is None:
        user = User(
            name=spec.get("user") or "",
            uid=spec.get("uid") or "",
            groups=tuple(spec.get("groups") or ()),
            extra=spec.get("extra") or {},
        )
        if not user.name and not user.groups:
            raise _invalid("spec.user", 'Invalid value: "": at least one of user or group must be specified')
    resource: Object = spec.get("resourceAttributes") or {}
    path: Object = spec.get("nonResourceAttributes") or {}
    if bool(resource) == bool(path):
        problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid("spec.resourceAttributes", f"Invalid value: null: {problem}")
    if namespace and resource.get("namespace") != namespace:
        problem = f'Invalid value: "{resource.get("namespace", "")}": must match metadata.namespace'
        raise _invalid("spec.resourceAttributes.namespace", problem)
    if resource:
        fields = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
        attributes = Attributes(user=user, **{field: resource.get(field) or "" for field in fields})
    else:
        attributes = Attributes(user=user, verb=path.get("verb") or "", path=path.get("path") or "/")
    allowed, reason = authorizer.decide(attributes)
    status: Object = {"allowed": allowed}
    return body | {"status": status | {"reason": reason} if reason else status}


def _invalid(field: str, problem: str) -> ApiError:
    """The real server leaves the kind out here."""
    return invalid(Resource(group="authorization.k8s.io", plural="", kind=""), "", field, problem)


def rules_review(authorizer: Authorizer, user: User, body: Object) -> Object:
    rules = [rule for rule, _ in authorizer.rules(user, (body.get("spec") or {}).get("namespace", ""))]
    status = {
        "resourceRules": [rule for rule in rules if rule.get("resources")],
        "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    return body | {"status": status}


def self_review(user: User, body: Object) -> Object:
    return body | {"status": {"userInfo": user.as_json()}}
