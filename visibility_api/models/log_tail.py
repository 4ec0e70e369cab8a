"""The end of a job's log in version v1alpha1, as `trainjobs/NAME/log-tail` answers it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .meta_v1 import ObjectMeta
from .wire import WireModel


class TrainJobLogTail(WireModel):
    """The last lines of the log of the container that failed first, or of rank 0's when none has."""

    kind: Literal["TrainJobLogTail"] | None = Field(default=None, description="Always TrainJobLogTail.")
    api_version: Literal["visibility.trainer.kubeflow.org/v1alpha1"] | None = Field(
        default=None, description="Always visibility.trainer.kubeflow.org/v1alpha1."
    )
    metadata: ObjectMeta = Field(description="Those of the job's document.")
    pod_name: str = Field(description="The pod whose log it is.")
    container_name: str | None = Field(
        default=None, description="The container; absent for the pod's default one."
    )
    replica: str | None = Field(
        default=None, description="Which replica failed, such as node-3; absent when none has."
    )
    previous: bool = Field(description="Whether it is the log of the run before the present one.")
    truncated: bool = Field(
        description="Whether lines are missing before these, or beginnings of lines: an answer has at most 64"
        " KiB, a line 2,000 characters."
    )
    lines: tuple[str, ...] = Field(description="The oldest first; control characters are replaced by U+FFFD.")
