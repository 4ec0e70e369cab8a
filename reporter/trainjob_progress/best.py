"""The best value so far of the metrics for which one is asked."""

from __future__ import annotations

from .document import MAX_METRICS, MAX_TEXT
from .values import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, Optional

    from .extremes import Spans
    from .values import Number

    Extreme = Literal["min", "max"]


class Best:
    """Of one run."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Extreme, Optional[Number]]] = {}

    def follow(self, wanted: Any) -> dict[str, str]:  # noqa: ANN401 — whatever was given
        """Show those of these metrics too. Returns what is to be said of wrong ones, by name."""
        said = {}
        if wanted is not None and not isinstance(wanted, dict):
            said["best"] = f"best={show(wanted)} is left out: a dictionary of names is needed"
        for name, which in wanted.items() if isinstance(wanted, dict) else ():
            if isinstance(name, str) and which in ("min", "max"):
                if self._known.get(name, ("",))[0] != which:  # a loop names them in each of its rounds
                    self._known[name] = which, None
            else:
                said["best"] = f'best={show(wanted)}: {show(name)} is left out: "min" or "max" is needed'
        return said

    def begin_again(self) -> None:
        """The same metrics, of which nothing is known."""
        self._known = {name: (which, None) for name, (which, _) in self._known.items()}

    def add_to(self, metrics: dict[str, Any], noted: Spans) -> None:
        """`noted`: what the metrics were since the last sample."""
        for name, (which, before) in tuple(self._known.items()):
            values = [before, metrics.get(name)]
            if name in noted:
                values += [noted[name].low, noted[name].high]
            known = [one for one in values if isinstance(one, (int, float)) and one - one == 0]
            if known and len(metrics) < MAX_METRICS:
                best = min(known) if which == "min" else max(known)
                self._known[name] = which, best
                metrics[f"best_{name}"[:MAX_TEXT]] = best
