"""What every model has in common; `models.py` is made of the server's own by `make openapi`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


def _wire_name(name: str) -> str:
    """`class_` is `class`, which Python keeps for itself."""
    return to_camel(name).rstrip("_")


class WireModel(BaseModel):
    """A JSON object: `snake_case` here, `camelCase` on the wire. What the server does not say is None.

    Fields and values that a newer server adds are no error.
    """

    model_config = ConfigDict(
        alias_generator=_wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        defer_build=True,  # importing stays cheap: each is built when it is first read
    )
