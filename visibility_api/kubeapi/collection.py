"""GET and LIST of one resource."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from visibility_api.errors.status import ObjectNotFound, TooLargeResourceVersion
from visibility_api.models.served import Resource
from visibility_api.store import Entry
from visibility_api.store.memory import MemoryStore

from .disconnect import unless_gone
from .fleet import Window, encode_sums, read_sums
from .forms import Form, Forms
from .list_layout import layout_of
from .list_options import read_get_options, read_list_options
from .lists import Lists
from .message import Headers, ResourceRequest, ResourceResponse
from .negotiation import JSON, Representation, Target, negotiate_request
from .rendering import render
from .training_jobs import AllKinds, readable_header
from .v1alpha1 import Codec

_VARY = (b"vary", b"Accept")
MAX_TAGS = 64  # of If-None-Match; clients send one


class Collection:
    """The handlers for get and list of one resource; `view`: of the one that shows all kinds.

    `now` is the clock of the ages in Tables; `lists` of all resources are made by the same object.
    """

    def __init__(
        self,
        resource: Resource,
        store: MemoryStore,
        *,
        now: Callable[[], datetime],
        lists: Lists | None = None,
        view: AllKinds | None = None,
    ) -> None:
        self._plural = resource.plural
        self._store = store
        self._view = view
        self._now = now
        self._forms = Forms(Codec(resource) if view is None else view.codec, now)
        self._lists = Lists(store) if lists is None else lists
        # What is kept of an entry is named after the form: that of the view differs.
        self._line_key = f"{self._forms.document.key} line"

    async def get(self, request: ResourceRequest) -> ResourceResponse:
        """One document, also as a subresource.

        Raises ObjectNotFound, which names the object itself, and what `AllKinds.locate` raises.
        """
        attributes = request.attributes
        representation = negotiate_request(request, Target.OBJECT)
        form = self._forms.choose(representation, request)
        revision = read_get_options(request) if request.query else None
        if revision is not None and not await self._store.reach(revision):
            raise TooLargeResourceVersion(revision, self._store.revision)
        plural, name = self._plural, attributes.name
        if self._view is not None:
            plural, name = await self._view.locate(request)
        entry = self._store.get(plural, attributes.namespace, name)
        if entry is None:
            raise ObjectNotFound(self._plural, attributes.name)
        if form is self._forms.document and representation.media_type == JSON and not representation.pretty:
            # Nearly every GET: body and tag are encoded once for each revision.
            body, tag = entry.encoded(self._line_key, self._line), entry.encoded("tag", _plain_tag)
        else:
            if not form.is_timeless:
                body = render(form.one(entry), representation)
                return ResourceResponse(content_type=representation.media_type, body=body)
            body = entry.encoded(
                f"{representation} {form.key}", lambda entry: render(form.one(entry), representation)
            )
            tag = _tag(entry, form, representation)
        headers = ((b"etag", tag), _VARY)
        if is_unmodified(request.headers, tag):
            return ResourceResponse(status=304, content_type=representation.media_type, headers=headers)
        return ResourceResponse(content_type=representation.media_type, body=body, headers=headers)

    async def list(self, request: ResourceRequest) -> ResourceResponse:
        """The documents of one namespace or of all.

        Raises what `read_list_options`, `AllKinds.readable` and `Lists.body` raise; ClientGone.
        """
        if self._view is not None and (sums := read_sums(request)) is not None:
            return await self._sums(request, self._view, *sums)
        representation = negotiate_request(request, Target.LIST)
        form = self._forms.choose(representation, request)
        options = read_list_options(request, is_mixed=self._view is not None)
        namespace = request.attributes.namespace or None
        resources = self._plural if self._view is None else await self._view.readable(request)
        layout = layout_of(form, representation)
        making = self._lists.body(layout, resources, namespace, options, client=request.client)
        body = await unless_gone(request.receive, making)
        headers = readable_header(resources)
        return ResourceResponse(content_type=representation.media_type, body=body, headers=headers)

    async def _sums(
        self, request: ResourceRequest, view: AllKinds, by: str, window: Window
    ) -> ResourceResponse:
        """The sums over the jobs that a list would have."""
        representation = negotiate_request(request, Target.PLAIN)
        options = read_list_options(request, is_mixed=True)
        namespace = request.attributes.namespace or None
        resources = await view.readable(request)
        making = self._lists.sums(
            lambda page: encode_sums(page, by, window, view.codec.kinds, self._now()),
            resources,
            namespace,
            options,
            client=request.client,
        )
        body = render(await unless_gone(request.receive, making), representation)
        return ResourceResponse(content_type=representation.media_type, body=body)

    def _line(self, entry: Entry) -> bytes:
        return self._forms.document.one(entry) + b"\n"


def _plain_tag(entry: Entry) -> bytes:
    return b'"%d"' % entry.revision


def _tag(entry: Entry, form: Form, representation: Representation) -> bytes:
    """The tag of any other form: other bytes need another tag than the plain document."""
    kind = representation.media_type.rpartition("/")[2] + ("-pretty" if representation.pretty else "")
    return f'"{entry.revision}-{form.key}-{kind}"'.encode()


def is_unmodified(headers: Headers, tag: bytes) -> bool:
    """Whether If-None-Match has the tag (RFC 9110, section 13.1.2: weak comparison)."""
    for name, value in headers:
        if name == b"if-none-match":
            if value.strip() == b"*":
                return True
            tags = value.split(b",", MAX_TAGS)[:MAX_TAGS]
            if any(each.strip().removeprefix(b"W/") == tag for each in tags):
                return True
    return False
