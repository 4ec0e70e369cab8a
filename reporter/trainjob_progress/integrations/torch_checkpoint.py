"""torch.distributed.checkpoint: `save`, `async_save` and `load` of this module in place of its own.

They mark what training waits for. The checkpoint of an asynchronous save is complete when its upload is.
"""

from __future__ import annotations

from typing import Any, Optional

import torch.distributed.checkpoint as dcp

from trainjob_progress import checkpointing, restoring

from . import _until


def save(*args: Any, step: Optional[int] = None, **kwargs: Any) -> Any:
    """`step`: from which a restart would go on; by default the one that is reached."""
    with checkpointing(step):
        return dcp.save(*args, **kwargs)


def async_save(*args: Any, step: Optional[int] = None, **kwargs: Any) -> Any:
    """`step`: as of `save`."""
    with checkpointing(step) as section:
        saving = dcp.async_save(*args, **kwargs)
        _until(section, lambda saving: [getattr(saving, "upload_completion", saving)], saving)
        return saving


def load(*args: Any, **kwargs: Any) -> Any:
    with restoring():
        return dcp.load(*args, **kwargs)
