"""Kubernetes' protobuf request bodies as JSON: kubectl's typed commands (`auth can-i`, …) send no other.

Only the kinds below; any other is refused with 415. Field numbers: k8s.io/api, generated.proto of each group.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from localcluster.machinery.metadata import Object
from localcluster.machinery.status import bad_request, unsupported_media_type

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# Message → "number:name:type" fields. Types: s string, b bytes, i integer, ? boolean, {s and {b maps,
# [ repeated, else the name of a message. Fields left out are ignored: times, and what servers fill in.
_SHAPES = {
    "ObjectMeta": "1:name:s 2:generateName:s 3:namespace:s 5:uid:s 6:resourceVersion:s 11:labels:{s "
    "12:annotations:{s 13:ownerReferences:[OwnerReference 14:finalizers:[s",
    "OwnerReference": "1:kind:s 3:name:s 4:uid:s 5:apiVersion:s 6:controller:? 7:blockOwnerDeletion:?",
    "DeleteOptions": "1:gracePeriodSeconds:i 2:preconditions:Preconditions 4:propagationPolicy:s",
    "Preconditions": "1:uid:s 2:resourceVersion:s",
    "Namespace": "1:metadata:ObjectMeta",
    "ConfigMap": "1:metadata:ObjectMeta 2:data:{s 3:binaryData:{b 4:immutable:?",
    "Secret": "1:metadata:ObjectMeta 2:data:{b 3:type:s 4:stringData:{s 5:immutable:?",
    "ServiceAccount": "1:metadata:ObjectMeta",
    "Service": "1:metadata:ObjectMeta 2:spec:ServiceSpec",
    "ServiceSpec": "1:ports:[ServicePort 2:selector:{s 3:clusterIP:s 4:type:s 10:externalName:s",
    "ServicePort": "1:name:s 2:protocol:s 3:port:i",
    "Role": "1:metadata:ObjectMeta 2:rules:[PolicyRule",
    "ClusterRole": "1:metadata:ObjectMeta 2:rules:[PolicyRule 3:aggregationRule:AggregationRule",
    "AggregationRule": "1:clusterRoleSelectors:[LabelSelector",
    "LabelSelector": "1:matchLabels:{s",
    "PolicyRule": "1:verbs:[s 2:apiGroups:[s 3:resources:[s 4:resourceNames:[s 5:nonResourceURLs:[s",
    "RoleBinding": "1:metadata:ObjectMeta 2:subjects:[Subject 3:roleRef:RoleRef",
    "ClusterRoleBinding": "1:metadata:ObjectMeta 2:subjects:[Subject 3:roleRef:RoleRef",
    "Subject": "1:kind:s 2:apiGroup:s 3:name:s 4:namespace:s",
    "RoleRef": "1:apiGroup:s 2:kind:s 3:name:s",
    "SelfSubjectReview": "1:metadata:ObjectMeta",
    "SelfSubjectRulesReview": "1:metadata:ObjectMeta 2:spec:SelfSubjectRulesReviewSpec",
    "SelfSubjectRulesReviewSpec": "1:namespace:s",
    "SelfSubjectAccessReview": "1:metadata:ObjectMeta 2:spec:AccessReviewSpec",
    "SubjectAccessReview": "1:metadata:ObjectMeta 2:spec:AccessReviewSpec",
    "LocalSubjectAccessReview": "1:metadata:ObjectMeta 2:spec:AccessReviewSpec",
    "AccessReviewSpec": "1:resourceAttributes:ResourceAttributes "
    "2:nonResourceAttributes:NonResourceAttributes 3:user:s 4:groups:[s 6:uid:s",
    "ResourceAttributes": "1:namespace:s 2:verb:s 3:group:s 4:version:s 5:resource:s "
    "6:subresource:s 7:name:s",
    "NonResourceAttributes": "1:path:s 2:verb:s",
    "TokenReview": "1:metadata:ObjectMeta 2:spec:TokenReviewSpec",
    "TokenReviewSpec": "1:token:s 2:audiences:[s",
    "TokenRequest": "1:metadata:ObjectMeta 2:spec:TokenRequestSpec",
    "TokenRequestSpec": "1:audiences:[s 3:boundObjectRef:BoundObjectReference 4:expirationSeconds:i",
    "BoundObjectReference": "1:kind:s 2:apiVersion:s 3:name:s 4:uid:s",
    "Unknown": "1:type:TypeMeta 2:raw:raw",
    "TypeMeta": "1:apiVersion:s 2:kind:s",
}
_FIELDS: dict[str, dict[int, tuple[str, str]]] = {
    message: {
        int(number): (name, kind) for number, name, kind in (field.split(":") for field in fields.split())
    }
    for message, fields in _SHAPES.items()
}


def decode(content: bytes) -> Object:
    """The object in a `k8s\\0` envelope; 415 for a kind not listed, 400 for bytes that are no protobuf."""
    try:
        if not content.startswith(_MAGIC):
            raise ValueError("no envelope")
        envelope = _message(content[len(_MAGIC) :], "Unknown")
        named: Object = envelope["type"]
        if named["kind"] not in _FIELDS:
            raise unsupported_media_type("application/json, application/yaml")
        return named | _message(envelope.get("raw", b""), named["kind"])
    except (ValueError, IndexError, KeyError) as error:
        raise bad_request("the body of the request could not be decoded") from error


def _message(data: bytes, shape: str) -> Object:
    fields = _FIELDS[shape]
    decoded: Object = {}
    for number, value in _wire(data):
        if number not in fields:
            continue
        name, kind = fields[number]
        if kind.startswith("["):
            decoded.setdefault(name, []).append(_value(value, kind[1:]))
        elif kind.startswith("{"):
            entry = dict(_wire(_bytes(value)))
            key, content = _bytes(entry.get(1, b"")).decode(), entry.get(2, b"")
            decoded.setdefault(name, {})[key] = _value(content, kind[1:])
        elif (read := _value(value, kind)) not in (
            "",
            {},
        ):  # Go writes unset strings and structs as empty ones
            decoded[name] = read
    return decoded


def _value(value: int | bytes, kind: str) -> Any:  # noqa: ANN401 - JSON of any shape
    if kind == "i":
        return value
    if kind == "?":
        return bool(value)
    if kind == "raw":
        return _bytes(value)
    if kind == "b":
        return base64.b64encode(_bytes(value)).decode()
    return _bytes(value).decode() if kind == "s" else _message(_bytes(value), kind)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of wire types 0 and 2; Kubernetes uses no others in these messages."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2 and at + value <= len(data):
            yield tag >> 3, data[at : at + value]
            at += value
        else:
            raise ValueError("unexpected wire type or length")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("number too long")
