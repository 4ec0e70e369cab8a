"""Turns what training code hands over (tensors, NumPy scalars, text) into what a document may hold.

Numbers are read when they are given. What lives on a device is copied there, without its graph, and read when
a report is due, because reading waits for the device: what was given is never kept.
"""

from __future__ import annotations

import math
import sys

from .document import MAX_INTEGER, MAX_METRICS, MAX_TEXT
from .termination import let_through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Protocol, SupportsFloat, Union

    class HasItem(Protocol):
        """A tensor, an array or a scalar of a library: anything that gives out its one number."""

        def item(self) -> Any: ...  # noqa: ANN401 — bool, int or float; NumPy says Any

    Number = Union[int, float]
    Value = Union[int, float, str]
    Metric = Union[str, SupportsFloat, HasItem, None]  # what may be handed over

PLAIN = frozenset((int, float, bool, str))


class Held:
    """A copy of one number that is still on its device, and what the metric was before."""

    __slots__ = ("before", "tensor")

    def __init__(self, tensor: Any) -> None:  # noqa: ANN401 — of any library
        self.tensor = tensor
        self.before: Optional[Value] = None


class Latest:
    """The newest number of a metric, in one object for as long as it gives numbers: one look-up for `step`.

    `low` and `high`: between what was noted of it since the last sample.
    """

    __slots__ = ("high", "last", "low")

    def __init__(self, last: Number) -> None:
        self.last = last
        self.forget()

    def forget(self) -> None:
        """Have its next number noted, whichever it is."""
        self.low, self.high = math.inf, -math.inf


def read_last(kept: Any) -> Any:  # noqa: ANN401
    """What is known of a metric now, without asking a device."""
    if type(kept) is Latest:
        return kept.last
    return kept.before if type(kept) is Held else kept


def take(value: Any) -> Union[Value, Held, None]:  # noqa: ANN401 — the point is to take anything
    """What to keep of a metric's value; None where there is nothing. Raises TypeError with the reason."""
    if value is None or type(value) in PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    size = _size(value)
    if size != 1:
        raise TypeError(f"has {size} elements, one is needed")
    if hasattr(value, "placements"):  # a DTensor: reading one may wait for the other ranks, for ever
        if not all(placement.is_replicate() for placement in value.placements):
            raise TypeError("is spread over several ranks; reduce it first")
        value = value.to_local()
    if hasattr(value, "detach"):
        return _take_tensor(value)
    if hasattr(value, "item") and not type(value).__module__.startswith("numpy"):
        if "Tracer" in type(value).__name__:
            raise TypeError("is being traced; report outside of jit")
        return Held(value)  # JAX: cannot be changed in place, and has no graph
    return read(value)


def read(value: Any) -> Optional[Number]:  # noqa: ANN401
    """The number that a value holds, waiting for its device. Raises TypeError with the reason."""
    if type(value).__module__.startswith("numpy.ma") and value.mask.any():
        raise TypeError("is masked")
    try:
        if hasattr(value, "item"):
            value = value.item()  # torch, NumPy, JAX, Paddle
        return value if type(value) is int else float(value)
    except Exception as error:  # whatever a foreign type raises
        let_through(error)
        raise TypeError(f"gives no number: {type(error).__name__}") from error


def read_held(values: dict[str, Any]) -> None:
    """Replace everything in `values` that is still on a device by its number, on the training thread."""
    for name, value in tuple(values.items()):
        if type(value) is not Held:
            continue
        if _is_capturing(value.tensor):
            continue  # reading now would break the graph that is being captured
        try:
            number: Any = read(value.tensor)
        except TypeError as error:
            let_through(error)
            number = value.before
        if values.get(name) is value:
            if number is None:
                del values[name]
            else:
                values[name] = number


def read_ready(values: Mapping[str, Any]) -> None:
    """Note what can be read without waiting for a device, on any thread: of JAX, which says so."""
    for value in tuple(values.values()):
        if type(value) is not Held:
            continue
        try:
            if value.tensor.is_ready():
                value.before = read(value.tensor)
        except Exception as error:  # another library's, which may be read on the training thread alone
            let_through(error)


def to_metrics(values: Mapping[str, Any]) -> dict[str, Value]:
    """`values` as a document has them, in their order: names and texts cut to length, no device asked."""
    metrics: dict[str, Value] = {}
    for name, value in values.items():
        value = read_last(value)
        key = str(name)[:MAX_TEXT]
        if not key or value is None or value == "" or (key in metrics and key != name):
            continue
        if isinstance(value, str):
            metrics[key] = value[:MAX_TEXT]
        elif isinstance(value, int):  # a bool as well: readers know no metric that is true
            metrics[key] = int(value) if abs(value) <= MAX_INTEGER else _scientific(value)
        elif math.isfinite(value) and abs(value) <= MAX_INTEGER:
            metrics[key] = value
        else:
            metrics[key] = repr(value)  # "nan", "inf": JSON has no number for them
        if len(metrics) == MAX_METRICS:
            break
    return metrics


def is_mapping(value: Any) -> bool:  # noqa: ANN401
    """Whether it looks like one."""
    try:
        return hasattr(value, "items")
    except Exception as error:  # a foreign type's own trouble
        let_through(error)
        return False


def to_number(value: Any) -> Optional[Number]:  # noqa: ANN401
    """A Python number for anything that holds exactly one; None for the rest."""
    if type(value) is int or type(value) is float:
        return value
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        if hasattr(value, "detach"):
            value = value.detach()  # torch warns when a scalar with a gradient becomes a number
        return read(value)
    except Exception as error:  # whatever a foreign type raises must not reach the training loop
        let_through(error)
        return None


def to_amount(value: object) -> Optional[Number]:
    """A finite number from 0 to 2^53; None for anything else."""
    number = to_number(value)
    return number if number is not None and 0 <= number <= MAX_INTEGER else None  # NaN fails both


def to_count(value: object) -> Optional[int]:
    """A whole number from 0 to 2^53; None for anything else."""
    if type(value) is int and 0 <= value <= MAX_INTEGER:
        return value
    amount = to_amount(value)
    return None if amount is None or amount != int(amount) else int(amount)


def to_whole(value: object) -> Optional[int]:
    """A whole number, negative ones too; None for anything else."""
    number = to_number(value)
    if number is None or isinstance(number, int):
        return number
    return int(number) if number.is_integer() else None


def _take_tensor(tensor: Any) -> Union[Value, Held, None]:  # noqa: ANN401 — of torch or Paddle
    tensor = tensor.detach()  # without the graph, or a loss would keep its whole model's activations
    if _is_on_host(tensor):
        return read(tensor)
    if _is_capturing(tensor):
        return None
    return Held(tensor.clone())  # a view would keep all of what it looks at, and change with it


def _is_on_host(tensor: Any) -> bool:  # noqa: ANN401
    try:
        device = getattr(tensor, "device", None)
        if device is not None:
            return bool(device.type == "cpu")
        return bool(tensor.place.is_cpu_place())
    except Exception as error:
        let_through(error)
        return False


def _is_capturing(tensor: Any) -> bool:  # noqa: ANN401
    torch = sys.modules.get("torch")
    try:
        if torch is None or tensor.device.type != "cuda":
            return False
        return bool(torch.cuda.is_current_stream_capturing())
    except Exception as error:
        let_through(error)
        return False


def _size(value: Any) -> int:  # noqa: ANN401
    try:
        size = value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
        size = size() if callable(size) else size
        return int(size)
    except Exception as error:
        let_through(error)
        return 1  # it will say so itself


def _scientific(number: int) -> str:
    """A whole number too large for a float, or for JSON's readers."""
    try:
        return repr(float(number))
    except OverflowError:
        exponent = int(math.log10(abs(number)))
        return f"{'-' if number < 0 else ''}1e+{exponent}"


def show(value: object) -> str:
    """A value as a warning has it: whatever it is, in a few characters."""
    try:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:59]}…"
    except Exception as error:  # an integer of thousands of digits, or a foreign type's own trouble
        let_through(error)
        return f"a {type(value).__name__}"
