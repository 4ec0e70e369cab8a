"""A job as HTML, and a display of it that follows the job: without a widget, so it works in any notebook."""

from __future__ import annotations

import html
import math
import threading
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from .ages import duration
from .errors import ClientError
from .history import JobHistory
from .jobs import Job
from .requests import is_transient
from .words import FAULTS

if TYPE_CHECKING:
    from .client import Client

_COLOURS = {"Succeeded": "#1a7f37", "Failed": "#cf222e", "Running": "#0969da"}
_POINTS = 200
_LOSSES = ("loss", "train_loss", "train/loss")


def html_of(job: Job, history: Optional[JobHistory] = None, note: str = "") -> str:
    """Everything that comes from the run is escaped. Colours work on light and dark."""
    status, escape = job.status, html.escape
    colour = _COLOURS.get(job.phase, "#6e7781")
    title = f"<b>{escape(job.namespace)}/{escape(job.name)}</b>"
    parts = [f'{title} <span style="color:{colour}">{escape(job.phase)}</span>']
    if status.phase_reason and job.phase != "Running":
        parts.append(escape(status.phase_reason))
    steps = status.steps
    if steps is not None and steps.current is not None:
        parts.append(f"step {steps.current:,}" + (f" of {steps.total:,}" if steps.total is not None else ""))
    if status.estimated_remaining_seconds is not None:
        parts.append(f"{duration(status.estimated_remaining_seconds)} left")
    parts += [f"{escape(each.name)} {escape(each.value)}" for each in (status.metrics or ())[:4]]
    rows = [f"<div>{' · '.join(parts)}</div>"]
    if job.progress is not None:
        rows.insert(
            1,
            '<div style="background:#8884;border-radius:4px;height:10px;margin:4px 0;max-width:480px">'
            f'<div style="width:{job.progress}%;height:10px;border-radius:4px;background:{colour}"></div>'
            "</div>"
            f"<div>{job.progress} %</div>",
        )
    for type_, fault in FAULTS.items():
        found = job.condition(type_)
        if fault == "True" and found is not None and found.status == fault:
            rows.append(f"<div>⚠ <b>{type_}</b>: {escape(found.message)}</div>")
    failure = status.failure
    if failure is not None and job.phase == "Failed":
        why = [failure.cause or failure.message or failure.reason or "", failure.hint or ""]
        rows.append(f"<div>{escape(' '.join(filter(None, why)))}</div>")
    if history is not None:
        rows.append(_curve(history))
    if note:
        rows.append(f"<div><i>{escape(note)}</i></div>")
    return f'<div style="font-family:sans-serif;line-height:1.5">{"".join(rows)}</div>'


def loss_of(history: JobHistory) -> Optional[str]:
    """The metric to draw: a loss, or else the first one."""
    names = history.metrics
    return next((each for each in _LOSSES if each in names), names[0] if names else None)


def _curve(history: JobHistory) -> str:
    """One metric as an SVG line; nothing where there are no two points."""
    name = loss_of(history)
    if name is None:
        return ""
    points = [(x, y) for x, y in zip(*history.metric(name)) if math.isfinite(y)]
    if len(points) < 2:
        return ""
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in _scaled(points, 480, 90))
    return (
        f'<div style="margin-top:4px">{html.escape(name)}: {points[0][1]:.4g} → {points[-1][1]:.4g}</div>'
        f'<svg width="480" height="94" role="img" aria-label="{html.escape(name, quote=True)} over steps">'
        f'<polyline points="{drawn}" fill="none" stroke="#0969da" stroke-width="1.5"/></svg>'
    )


def _scaled(points: Sequence[Tuple[float, float]], width: int, height: int) -> List[Tuple[float, float]]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    return [((x - min(xs)) / wide * width, 2 + (max(ys) - y) / high * height) for x, y in points]


class JobDisplay:
    """What `Client.show_job` returns: it follows the job in a thread of its own, until it ends or `stop`."""

    def __init__(self, client: "Client", name: str, kind: str, namespace: Optional[str]) -> None:
        self._client = client
        self._place: "dict[str, Any]" = {"kind": kind, "namespace": namespace}
        self._name = name
        self._stopped = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def show(self) -> "JobDisplay":
        """Draws it once, here, and then whenever it has changed. Raises ImportError without IPython."""
        from IPython.display import HTML, display

        handle = display(HTML(self._draw()), display_id=True)

        def follow() -> None:
            while not self._stopped.wait(2.0):
                try:
                    handle.update(HTML(self._draw()))
                except ClientError as error:
                    if not is_transient(error):  # such as a job that is gone
                        self._stopped.set()
                    handle.update(HTML(f"<i>{html.escape(str(error))}</i>"))

        self._thread = threading.Thread(target=follow, name=f"display of {self._name}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """The display stays as it is."""
        self._stopped.set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Until it is drawn for the last time; whether that has come."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _draw(self) -> str:
        job = self._client.get_job(self._name, **self._place)
        history = self._client.get_job_history(self._name, **self._place, max_points=_POINTS)
        if job.has_ended:
            self._stopped.set()
        return html_of(job, history)
