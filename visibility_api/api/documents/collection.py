"""GET and LIST of one resource."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from visibility_api.api.message import Request, Response
from visibility_api.api.negotiation import JSON, Representation, Target, negotiate_request
from visibility_api.api.rendering import render
from visibility_api.api.resources import Resource
from visibility_api.api.status import NotFound, TooLargeResourceVersion
from visibility_api.store import Entry, Store

from .forms import Form, Forms
from .list_body import list_body
from .list_options import read_get_options, read_list_options
from .paging import check_revision, find_page
from .v1alpha1 import Codec
from .whole_lists import WholeLists

_VARY = (b"vary", b"Accept")


class Collection:
    """Answers for the documents of one resource. `now` is the clock of the ages in Tables."""

    def __init__(self, resource: Resource, store: Store, *, now: Callable[[], datetime]) -> None:
        self._plural = resource.plural
        self._store = store
        self._forms = Forms(Codec(resource), now)
        self._whole = WholeLists(store, resource.plural)

    async def get(self, request: Request) -> Response:
        """One document, also behind a subresource. Raises NotFound, naming the object itself (R4)."""
        asked = request.attributes
        representation = negotiate_request(request, Target.OBJECT)
        form = self._forms.choose(representation, request)
        revision = read_get_options(request) if request.query else None
        if revision is not None and revision > self._store.revision:
            raise TooLargeResourceVersion(revision, self._store.revision)
        entry = self._store.get(self._plural, asked.namespace, asked.name)
        if entry is None:
            raise NotFound(self._plural, asked.name)
        if form is self._forms.document and representation.media_type == JSON and not representation.pretty:
            # What nearly every GET asks for: nothing is made that was made before.
            body, tag = entry.encoded("line", self._line), entry.encoded("tag", _plain_tag)
        else:
            body = render(form.one(entry), representation)
            if not form.is_timeless:
                return Response(content_type=representation.media_type, body=body)
            tag = _tag(entry, form, representation)
        headers = ((b"etag", tag), _VARY)
        if _is_held(request, tag):
            return Response(status=304, content_type=representation.media_type, headers=headers)
        return Response(content_type=representation.media_type, body=body, headers=headers)

    async def list(self, request: Request) -> Response:
        """Documents of one namespace or of all. Raises what `read_list_options` and `find_page` raise."""
        representation = negotiate_request(request, Target.LIST)
        form = self._forms.choose(representation, request)
        options = read_list_options(request)
        namespace = request.attributes.namespace or None
        is_compact = representation.media_type == JSON and not representation.pretty
        if options.is_of_all and form.is_timeless and is_compact:
            check_revision(self._store, options)
            body = await self._whole.body(form, namespace)
        else:
            page = await find_page(self._store, self._plural, namespace, options)
            body = await list_body(form, page.list_meta(), page.entries, representation)
        return Response(content_type=representation.media_type, body=body)

    def _line(self, entry: Entry) -> bytes:
        return self._forms.document.one(entry) + b"\n"


def _plain_tag(entry: Entry) -> bytes:
    return b'"%d"' % entry.revision


def _tag(entry: Entry, form: Form, representation: Representation) -> bytes:
    """Not the plain document's: other bytes need another tag."""
    kind = representation.media_type.rpartition("/")[2] + ("-pretty" if representation.pretty else "")
    return f'"{entry.revision}-{form.key}-{kind}"'.encode()


def _is_held(request: Request, tag: bytes) -> bool:
    """Whether the client has these very bytes already (RFC 9110, 13.1.2: weak comparison)."""
    for name, value in request.headers:
        if name == b"if-none-match":
            if value.strip() == b"*":
                return True
            if any(held.strip().removeprefix(b"W/") == tag for held in value.split(b",")):
                return True
    return False
