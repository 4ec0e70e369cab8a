"""GET and LIST of one resource."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from visibility_api.store import Entry, Store

from .forms import Form, Forms
from .list_body import list_body
from .list_options import read_get_options, read_list_options
from .message import Request, Response
from .negotiation import JSON, Representation, Target, negotiate_request
from .paging import Page, find_page
from .rendering import render
from .resources import Resource
from .status import NotFound, TooLargeResourceVersion
from .v1alpha1 import Codec

_PLAIN = Representation()


class Collection:
    """Answers for the documents of one resource. `now` is the clock of the ages in Tables."""

    def __init__(self, resource: Resource, store: Store, *, now: Callable[[], datetime]) -> None:
        self._plural = resource.plural
        self._store = store
        self._forms = Forms(Codec(resource), now)

    async def get(self, request: Request) -> Response:
        """One document, also behind a subresource. Raises NotFound, naming the object itself (R4)."""
        asked = request.attributes
        representation = negotiate_request(request, Target.OBJECT)
        form = self._forms.choose(representation, request)
        revision = read_get_options(request)
        if revision is not None and revision > self._store.revision:
            raise TooLargeResourceVersion(revision, self._store.revision)
        entry = self._store.get(self._plural, asked.namespace, asked.name)
        if entry is None:
            raise NotFound(self._plural, asked.name)
        if not form.is_timeless:
            return Response(content_type=representation.media_type, body=_body(entry, form, representation))
        tag = _entity_tag(entry, form, representation)
        headers = ((b"etag", tag), (b"vary", b"Accept"))
        if _is_held(request, tag):
            return Response(status=304, content_type=representation.media_type, headers=headers)
        body = _body(entry, form, representation)
        return Response(content_type=representation.media_type, body=body, headers=headers)

    async def list(self, request: Request) -> Response:
        """Documents of one namespace or of all. Raises what `read_list_options` and `find_page` raise."""
        representation = negotiate_request(request, Target.LIST)
        form = self._forms.choose(representation, request)
        options = read_list_options(request)
        page = await find_page(self._store, self._plural, request.attributes.namespace or None, options)
        body = await self._list_body(page, form, representation)
        return Response(content_type=representation.media_type, body=body)

    async def _list_body(self, page: Page, form: Form, representation: Representation) -> Sequence[bytes]:
        """A whole state in plain JSON is made once for all who ask while it lasts."""
        if page.whole is None or not form.is_timeless or representation.media_type != JSON:
            return await list_body(form, page.list_meta(), page.entries, representation)
        key = (form.key, representation.pretty)
        body = page.whole.kept.get(key)
        if body is None:
            body = await list_body(form, page.list_meta(), page.entries, representation)
            page.whole.kept[key] = body
        return body


def _body(entry: Entry, form: Form, representation: Representation) -> bytes:
    if representation == _PLAIN:
        return entry.encoded("document line", lambda entry: form.one(entry) + b"\n")
    return render(form.one(entry), representation)


def _entity_tag(entry: Entry, form: Form, representation: Representation) -> bytes:
    """The revision, and beside the plain document what form it has: other bytes need another tag."""
    if representation == _PLAIN:
        return b'"%d"' % entry.revision
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
