"""What every model of the wire has in common: names, absent fields, times, durations, formats of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args

import msgspec
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

API_VERSION: Final = "visibility.trainer.kubeflow.org/v1alpha1"
ApiVersion = Annotated[
    Literal["visibility.trainer.kubeflow.org/v1alpha1"], Field(description=f"Always {API_VERSION}.")
]


def _wire_name(name: str) -> str:
    """`class_` is `class`, which Python keeps for itself."""
    return to_camel(name).rstrip("_")


class WireModel(BaseModel):
    """A JSON object. Fields are `snake_case` here and `camelCase` on the wire.

    A field without a value is None here and absent on the wire, never null: `encode` leaves it out, a route
    needs `response_model_exclude_none=True`, and schemas do not allow null. Unknown fields are ignored, as by
    any reader of an API; a test of our own output passes `strict=True, extra="forbid"`.
    """

    model_config = ConfigDict(
        alias_generator=_wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
    )

    def encode(self) -> bytes:
        """Compact JSON, without a newline."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Fields that may be absent are optional, not nullable; titles that repeat names are left out."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        if schema.get("title") == cls.__name__:
            del schema["title"]
        schema["description"] = " ".join(schema["description"].split())
        properties = schema.get("properties", {})
        for name, field in properties.items():
            properties[name] = not_nullable(field)
        return reference


def not_nullable(field: JsonSchemaValue, kept: Sequence[str] = ()) -> JsonSchemaValue:
    """Without null, title and default, but with the keys that are `kept`."""
    field = {key: value for key, value in field.items() if key in kept or key not in ("title", "default")}
    given = [choice for choice in field.get("anyOf", []) if choice != {"type": "null"}]
    if len(given) == 1:
        del field["anyOf"]
        return {**given[0], **field}
    return field


@dataclass(frozen=True, slots=True)
class _Format:
    """The `format` of a number. Bounds that the format implies are checked, but not published."""

    name: str
    most: int | None = None

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema: JsonSchemaValue = {**handler(core_schema), "format": self.name}
        if self.most is not None and schema.get("maximum") == self.most:
            del schema["maximum"]
        return schema


_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1

Int32 = Annotated[int, Field(le=_MAX_INT32), _Format("int32", _MAX_INT32)]
Int64 = Annotated[int, Field(le=_MAX_INT64), _Format("int64", _MAX_INT64)]


Double = Annotated[float, Field(allow_inf_nan=False), _Format("double")]

# A named type: OpenAPI refers to it by its name, as Kubernetes' own definitions do. Whole seconds in UTC.
Time = TypeAliasType("Time", AwareDatetime)

Extra = dict[str, Any]


def map_keyed_by(key: str) -> Extra:
    """Schema extension of a list in which `key` is unique: server-side apply and kubectl merge by it."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


Model = TypeVar("Model", bound=WireModel)


def struct_of(model: type[Model]) -> type[Model]:
    """A msgspec Struct with the fields of a model, for documents that are encoded on the hot path.

    It is constructed like `model`, several times as fast and without validation.

    To a type checker it is the model itself, so that every field is checked where it is filled. Its instances
    can be passed to msgspec's encoder, and to nothing else. A field that is None is left out.

    No Int32 is above its maximum: typed clients could not read a list in which one object has such a number.
    """
    bounded = [name for name, field in model.model_fields.items() if _is_int32(field)]

    def cut(made: msgspec.Struct) -> None:
        for name in bounded:
            if (getattr(made, name) or 0) > _MAX_INT32:
                msgspec.structs.force_setattr(made, name, _MAX_INT32)

    fields: list[Any] = []
    names: dict[str, str] = {}
    for name, field in model.model_fields.items():
        if field.is_required():
            fields.append((name, Any))
        elif field.default is None:
            fields.append((name, Any, None))
        else:  # would be left out where it is equal to the default
            raise TypeError(f"{model.__name__}.{name}: only None can be the default")
        names[name] = field.alias or name
    made = msgspec.defstruct(
        model.__name__,
        fields,
        frozen=True,
        kw_only=True,
        omit_defaults=True,
        rename=names,
        gc=False,
        namespace={"__post_init__": cut} if bounded else {},
    )
    return cast(type[Model], made)


def _is_int32(field: FieldInfo) -> bool:
    """Whether it is an Int32, or None."""
    parts = (field, *get_args(field.annotation))
    return any(
        isinstance(each, _Format) and each.name == "int32"
        for part in parts
        for each in getattr(part, "metadata", getattr(part, "__metadata__", ()))
    )


_PART = re.compile(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(ns|us|µs|ms|s|m|h)", re.ASCII)
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_DURATION_CHARACTERS = 64


def parse_duration_s(text: str) -> float | None:
    """Durations as Go's `time.ParseDuration` reads them, the non-negative part of it.

    Seconds of `30s`, `1h30m`, `1.5s`, `0`; None when it is no such duration."""
    if text == "0":
        return 0.0
    if not 0 < len(text) <= MAX_DURATION_CHARACTERS:
        return None
    seconds, end = 0.0, 0
    while end < len(text):
        match = _PART.match(text, end)
        if match is None:
            return None
        seconds += float(match[1]) * _UNIT_S[match[2]]
        end = match.end()
    return seconds
