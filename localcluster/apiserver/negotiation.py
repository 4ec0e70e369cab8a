"""Which form of an answer the client wants (R7-R9). JSON only, with `as=Table` and the metadata forms."""

from __future__ import annotations

from dataclasses import dataclass

from localcluster.machinery.status import ApiError

_FORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList")


@dataclass(frozen=True, slots=True)
class Form:
    """`kind` is "" for the plain object; `version` distinguishes aggregated discovery v2 from v2beta1."""

    kind: str = ""
    version: str = ""


def negotiate(accept: str, allowed: tuple[str, ...] = ()) -> Form:
    """The first clause that can be served with its parameters; `allowed` are the forms on offer here."""
    clauses = [_parse(clause) for clause in (accept or "*/*").split(",")]
    for media, parameters in sorted(clauses, key=lambda clause: -float(clause[1].get("q", "1"))):
        if media not in ("application/json", "application/*", "*/*"):
            continue
        form = Form(parameters.get("as", ""), parameters.get("v", ""))
        if not form.kind or (form.kind in allowed and form.kind in _FORMS and form.version != "v2beta1"):
            return form
    message = "only the following media types are accepted: application/json, application/yaml"
    raise ApiError(406, "NotAcceptable", message)


def _parse(clause: str) -> tuple[str, dict[str, str]]:
    media, *parameters = (part.strip() for part in clause.split(";"))
    pairs = (parameter.partition("=") for parameter in parameters)
    return media.lower(), {key: value for key, _, value in pairs}
