"""The resource verbs over HTTP: reads bodies and options, calls the registry, shapes the answer."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from aiohttp import web

from localcluster.apiserver import admission, protobuf, reviews
from localcluster.apiserver.identity import Authenticator
from localcluster.apiserver.negotiation import Form, negotiate
from localcluster.apiserver.rbac import Authorizer
from localcluster.apiserver.registry import APPLY, Registry
from localcluster.apiserver.request_info import integer
from localcluster.apiserver.responses import Call, json_response
from localcluster.apiserver.store import Entry
from localcluster.apiserver.tables import partial, table
from localcluster.apiserver.watches import EventEncoder, WatchOptions, stream
from localcluster.machinery.metadata import Object, key_of
from localcluster.machinery.resources import BY_PLURAL, Resource
from localcluster.machinery.selectors import Predicate, field_selector, label_selector
from localcluster.machinery.status import (
    bad_request,
    conflict,
    invalid_list_options,
    method_not_allowed,
    no_such_route,
    too_large_version,
    unsupported_media_type,
)

_ENCODINGS = ("application/json", "application/yaml")


class ObjectsApi:
    """Everything below /api/v1 and /apis/G/V that is kept in the store, and the virtual reviews."""

    def __init__(self, registry: Registry, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._authorizer = authorizer

    async def answer(self, call: Call, resource: Resource) -> web.StreamResponse:
        info = call.info
        if "dryRun" in call.query and info.verb not in ("get", "list", "watch"):
            raise bad_request("the local cluster does not support dryRun")
        if not resource.is_stored:
            return await self._review(call, resource)
        if info.subresource in ("binding", "token"):
            return await self._create_subresource(call, resource)
        if info.verb == "list":
            return self._list(call, resource)
        if info.verb == "watch":
            return await self._watch(call, resource)
        if info.verb == "get" and call.request.method == "GET":
            entry = self._registry.get(resource, self._namespace(call, resource), info.name)
            return self._object(call, resource, entry)
        if info.verb == "create" and not info.name:
            entry = self._create(call, resource, await read_body(call.request))
            return self._object(call, resource, entry, 201)
        if info.verb == "update" and info.name:
            body = await read_body(call.request)
            place = (self._namespace(call, resource), info.name)
            return self._object(
                call, resource, self._registry.update(resource, *place, body, info.subresource)
            )
        if info.verb == "patch" and info.name:
            return await self._patch(call, resource)
        if info.verb == "delete" and not info.subresource:
            return await self._delete(call, resource)
        if info.verb == "deletecollection":
            return await self._delete_collection(call, resource)
        raise method_not_allowed()

    def _namespace(self, call: Call, resource: Resource) -> str:
        if not resource.namespaced:
            return ""
        if not call.info.namespace:
            raise method_not_allowed() if call.info.verb == "create" else no_such_route()
        return call.info.namespace

    def _create(self, call: Call, resource: Resource, body: Object) -> Entry:
        return self._registry.create(resource, self._namespace(call, resource), body)

    async def _patch(self, call: Call, resource: Resource) -> web.StreamResponse:
        content_type = call.request.content_type
        body = await read_body(call.request, patch=True)
        if content_type == APPLY and not call.query.get("fieldManager"):
            raise bad_request(
                "PatchOptions is invalid: fieldManager: Required value: is required for apply patch"
            )
        place = (self._namespace(call, resource), call.info.name)
        entry, created = self._registry.patch(resource, *place, body, content_type, call.info.subresource)
        return self._object(call, resource, entry, 201 if created else 200)

    async def _delete(self, call: Call, resource: Resource) -> web.StreamResponse:
        options = await self._delete_options(call)
        place = (self._namespace(call, resource), call.info.name)
        entry = self._registry.delete(resource, *place, options)
        if self._registry.store.get(resource, *place):
            return self._object(call, resource, entry)  # still ending
        details = {"name": call.info.name, "group": resource.group, "kind": resource.plural}
        details["uid"] = entry.object["metadata"]["uid"]
        details = {key: value for key, value in details.items() if value}
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        }
        return json_response(status)

    async def _delete_collection(self, call: Call, resource: Resource) -> web.StreamResponse:
        options = await self._delete_options(call)
        matches = self._selection(call, resource)
        namespace = self._namespace(call, resource)
        entries = [each for each in self._registry.store.entries(resource, namespace) if matches(each.object)]
        for entry in entries:
            self._registry.delete(resource, *key_of(entry.object), options)
        return json_response(self._encoded_list(resource, entries))

    async def _delete_options(self, call: Call) -> Object:
        options = await read_body(call.request) if call.request.can_read_body else {}
        if "gracePeriodSeconds" in call.query:
            options["gracePeriodSeconds"] = integer(call.query["gracePeriodSeconds"])
        if "propagationPolicy" in call.query:
            options["propagationPolicy"] = call.query["propagationPolicy"]
        return options

    def _selection(self, call: Call, resource: Resource) -> Predicate:
        labels = label_selector(call.query.get("labelSelector", ""))
        fields = field_selector(resource, call.query.get("fieldSelector", ""))
        return lambda thing: labels(thing) and fields(thing)

    def _list(self, call: Call, resource: Resource) -> web.StreamResponse:
        """`limit` is ignored, which the API allows (L10): everything comes in one page."""
        self._check_version(call)
        store, matches = self._registry.store, self._selection(call, resource)
        found = [each for each in store.entries(resource, call.info.namespace) if matches(each.object)]
        form = self._form(call, "Table", "PartialObjectMetadataList")
        revision = str(store.revision)
        if form.kind == "Table":
            things = [entry.object for entry in found]
            return json_response(
                table(resource, things, revision, call.query.get("includeObject", "Metadata"))
            )
        if form.kind:
            items = [partial(entry.object) for entry in found]
            kind = {"kind": form.kind, "apiVersion": "meta.k8s.io/v1"}
            # As kube-apiserver, whose list of these is a nil slice when nothing matches.
            return json_response(kind | {"metadata": {"resourceVersion": revision}, "items": items or None})
        return json_response(self._encoded_list(resource, found))

    def _encoded_list(self, resource: Resource, entries: list[Entry]) -> bytes:
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        head["metadata"] = {"resourceVersion": str(self._registry.store.revision)}  # type: ignore[assignment]
        items = b",".join(entry.encoded if resource.is_custom else entry.encoded_item for entry in entries)
        return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"

    def _check_version(self, call: Call) -> None:
        """L4-L8, as far as a server can check that holds the current state only."""
        version, match = call.query.get("resourceVersion", ""), call.query.get("resourceVersionMatch", "")
        if "sendInitialEvents" in call.query:
            raise invalid_list_options(
                "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"
            )
        if match and not version:
            problem = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise invalid_list_options("resourceVersionMatch", problem)
        for number in ("limit", "timeoutSeconds"):
            integer(call.query.get(number) or "0")
        if version and not version.isdecimal():
            parsing = f'strconv.ParseUint: parsing "{version}": invalid syntax'
            raise bad_request(
                f'invalid resource version: resourceVersion: Invalid value: "{version}": {parsing}'
            )
        if version and int(version) > self._registry.store.revision:
            raise too_large_version(int(version), self._registry.store.revision)

    async def _watch(self, call: Call, resource: Resource) -> web.StreamResponse:
        options, matches = WatchOptions.parse(call.query), self._selection(call, resource)
        form = self._form(call, "Table", "PartialObjectMetadata")
        encoder = EventEncoder(resource, form, call.query.get("includeObject", "Metadata"))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(call.request)  # at once: client-go's Watch returns only then (W3)
        async for line in stream(
            self._registry.store, resource, call.info.namespace, matches, options, encoder
        ):
            if line:
                await response.write(line)
        await response.write_eof()
        return response

    def _object(self, call: Call, resource: Resource, entry: Entry, code: int = 200) -> web.Response:
        form = self._form(call, "Table", "PartialObjectMetadata")
        if form.kind == "Table":
            version = entry.object["metadata"]["resourceVersion"]
            include = call.query.get("includeObject", "Metadata")
            return json_response(table(resource, [entry.object], version, include), code)
        return json_response(partial(entry.object) if form.kind else entry.encoded, code)

    def _form(self, call: Call, *allowed: str) -> Form:
        return negotiate(call.request.headers.get("Accept", ""), allowed)

    async def _create_subresource(self, call: Call, resource: Resource) -> web.Response:
        if call.info.verb != "create":
            raise method_not_allowed()
        body = await read_body(call.request)
        current = self._registry.get(resource, call.info.namespace, call.info.name).object
        if call.info.subresource == "token":
            return json_response(reviews.token_request(self._authenticator, current, body), 201)
        if current["spec"].get("nodeName"):
            raise conflict(resource, call.info.name, f"pod {call.info.name} is already assigned to a node")
        self._registry.store.put(resource, admission.bind(current, body))
        return json_response({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, 201)

    async def _review(self, call: Call, resource: Resource) -> web.Response:
        if call.info.verb != "create" or call.info.name:
            raise method_not_allowed()
        body = await read_body(call.request)
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}} | body
        return json_response(self._reviewed(call, resource, body), 201)

    def _reviewed(self, call: Call, resource: Resource, body: Object) -> Object:
        match resource.kind:
            case "TokenReview":
                return reviews.token_review(self._authenticator, body)
            case "SelfSubjectReview":
                return reviews.self_review(call.user, body)
            case "SelfSubjectRulesReview":
                return reviews.rules_review(self._authorizer, call.user, body)
            case "SelfSubjectAccessReview":
                return reviews.access_review(self._authorizer, body, call.user)
            case "Event":
                self._registry.create(BY_PLURAL["events"], self._namespace(call, resource), core_event(body))
                return body
            case _:
                return reviews.access_review(self._authorizer, body, None, call.info.namespace)


def core_event(event: Object) -> Object:
    """The same in the core group: kube-apiserver keeps one object, and shows it in both."""
    renamed = {"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent"}
    found = {renamed.get(name, name): value for name, value in event.items()}
    return found | {"apiVersion": "v1", "firstTimestamp": None, "lastTimestamp": None}


async def read_body(request: web.Request, *, patch: bool = False) -> Any:  # noqa: ANN401 - JSON of any shape
    """The body as JSON; YAML where Kubernetes takes it. 400 when it is neither, 415 for protobuf."""
    content = await request.read()
    media = request.content_type
    if media == protobuf.CONTENT_TYPE and not patch:
        return protobuf.decode(content)
    if not patch and media not in (*_ENCODINGS, "application/octet-stream"):
        raise unsupported_media_type(", ".join(_ENCODINGS))
    try:
        body = yaml.safe_load(content) if media.endswith("yaml") else msgspec.json.decode(content)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request("the body of the request could not be decoded") from error
    if not patch and not isinstance(body, dict):
        raise bad_request("the body of the request is not an object")
    return body
