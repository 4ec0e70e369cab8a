"""msgspec Structs with the fields of a model, for documents that are encoded on the hot path.

The model stays the one description: a Struct has its fields, in its order, under its names on the wire.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from .wire import WireModel

Model = TypeVar("Model", bound=WireModel)


def struct_of(model: type[Model]) -> type[Model]:
    """A class that is constructed like `model`, several times as fast and without validation.

    To a type checker it is the model itself, so that every field is checked where it is filled. Its instances
    can be passed to msgspec's encoder, and to nothing else. A field that is None is left out.
    """
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
        model.__name__, fields, frozen=True, kw_only=True, omit_defaults=True, rename=names, gc=False
    )
    return cast(type[Model], made)
