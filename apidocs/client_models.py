"""`models.py` and `words.py` in `reporter/trainjob_client/`, made of the server's models.

There is one description of the wire. The client's classes have the names, types and meanings of the server's.
They refuse nothing: there are no limits and no closed sets of words, for a newer server may send others.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from typing_extensions import TypeAliasType

from visibility_api.models import v1alpha1
from visibility_api.models.condition_types import CONDITION_TYPES
from visibility_api.models.job_records import JobRecord
from visibility_api.models.subresources import TrainJobLogTail, TrainJobProgressHistory
from visibility_api.models.wire import WireModel

_WIDTH = 110
# What the client reads. A document of one kind is one of all kinds without jobRef.
_READ = (
    v1alpha1.TrainingJob,
    v1alpha1.TrainingJobSums,
    TrainJobProgressHistory,
    TrainJobLogTail,
    JobRecord,
)
_OPTIONAL = {("TrainingJob", "job_ref")}
_HEAD = '''"""What the server answers. Made of its own models by `make openapi`: do not edit."""

from __future__ import annotations

from datetime import datetime
from typing import Dict, Optional, Tuple

from .wire import WireModel
'''
_WORDS = '''"""Phases and conditions. Made of the server's own by `make openapi`: do not edit."""

PHASES = (%s)
CONDITION_TYPES = (%s)
# Those that somebody has to look at, when they have this status.
FAULTS = {%s}
'''


def client_models() -> bytes:
    """models.py."""
    found: dict[str, type[WireModel]] = {}
    for model in _READ:
        _collect(model, found)
    return (_HEAD + "".join(_class(each) for each in found.values())).encode()


def client_words() -> bytes:
    """words.py."""
    faults = (f'{each.name}": "{each.fault}' for each in CONDITION_TYPES if each.fault)
    names = (each.name for each in CONDITION_TYPES)
    return (_WORDS % (_words(get_args(v1alpha1.Phase)), _words(names), _words(faults))).encode()


def _words(words: Any) -> str:
    return "".join(f'\n    "{each}",' for each in words) + "\n"


def _collect(model: type[WireModel], found: dict[str, type[WireModel]]) -> None:
    """Those that it is made of come first."""
    for field in model.model_fields.values():
        for each in _models_in(field.annotation):
            _collect(each, found)
    found.setdefault(model.__name__, model)


def _models_in(annotation: Any) -> Iterator[type[WireModel]]:
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _class(model: type[WireModel]) -> str:
    text = [f"\n\nclass {model.__name__}(WireModel):", *_docstring(model.__doc__ or "")]
    for name, field in model.model_fields.items():
        type_ = _type(field.annotation)
        is_optional = (model.__name__, name) in _OPTIONAL
        if get_origin(field.annotation) is Literal and not field.is_required():
            line = f'{type_} = "{field.default}"'
        elif field.is_required() and not is_optional:
            line = type_
        else:
            line = f"{type_ if type_.startswith('Optional') else f'Optional[{type_}]'} = None"
        text += [f"\n    {name}: {line}", *_docstring(field.description or "")]
    return "\n".join(text) + "\n"


def _docstring(text: str) -> list[str]:
    """Wrapped, as people would write it."""
    if not text:
        return []
    words = (' """' + " ".join(text.split()) + '"""').strip().split(" ")
    lines = ["   "]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("   ")
        lines[-1] += " " + word
    return lines


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, TypeAliasType):
        return "datetime"  # Time, the only one
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, UnionType):
        kept = [each for each in arguments if each is not NoneType]
        (only,) = kept
        return f"Optional[{_type(only)}]"
    if origin is tuple:
        return f"Tuple[{_type(arguments[0])}, ...]"
    if origin is dict:
        return f"Dict[{_type(arguments[0])}, {_type(arguments[1])}]"
    if origin is Literal:
        return "str"
    if annotation is datetime:
        return "datetime"
    return str(annotation.__name__)
