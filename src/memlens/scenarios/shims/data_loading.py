"""torch.utils.data: loaders work in the script's own process."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from memlens.scenarios.shims.registry import Shims, shim


@shim("torch.utils.data")
def one_process(shims: Shims, data: ModuleType) -> dict[str, Any]:
    """Workers would be forks of the whole simulation; what they load is the same without them."""
    init = data.DataLoader.__init__

    @functools.wraps(init)
    def without_workers(self: Any, dataset: Any, *args: Any, **options: Any) -> None:
        if len(args) > 4:
            args = (*args[:4], 0, *args[5:])
        workers = options.pop("num_workers", 0)
        if workers:
            shims.say(
                "data loaders run without workers",
                "batches are the same; workers use memory of the host only",
            )
            for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
                options.pop(name, None)
        init(self, dataset, *args, **options)

    return {"DataLoader.__init__": without_workers}
