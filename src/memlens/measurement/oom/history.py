"""The allocator's history at the moment of failure: taken, and written where there is room."""

from __future__ import annotations

import pickle
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class AllocatorHistory:
    """The snapshot, the file that has it, and why there is none, or why it lies elsewhere."""

    snapshot: dict[str, Any] | None = field(default=None, repr=False)
    path: str = ""
    problem: str = ""


NOTHING = AllocatorHistory()


def keep(device: torch.device, folder: Path | None, name: str) -> AllocatorHistory:
    """Take CUDA's recorded events and write them to `folder`, else to the temporary directory.

    Without a folder nothing is taken.
    """
    if device.type != "cuda" or folder is None:
        return NOTHING
    try:
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
        data = pickle.dumps(snapshot, protocol=4)
    except (RuntimeError, AttributeError, MemoryError, pickle.PicklingError) as error:
        return AllocatorHistory(problem=f"the allocator's history could not be read: {error}")
    problem = ""
    for place in (folder, Path(tempfile.gettempdir())):
        try:
            (place / name).write_bytes(data)
        except OSError as error:
            problem = problem or f"nothing could be written to {place}: {error.strerror}"
            with suppress(OSError):
                (place / name).unlink(missing_ok=True)  # half a record is none
        else:
            return AllocatorHistory(snapshot, str(place / name), problem)
    return AllocatorHistory(snapshot, problem=problem)
