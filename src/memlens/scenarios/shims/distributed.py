"""torch.distributed: one process of one, whose collectives have nobody to talk to.

DistributedDataParallel keeps its gradient buckets, for they are memory: a first one of 1 MiB, then of
`bucket_cap_mb` (torch/nn/parallel/distributed.py and torch/csrc/distributed/c10d/reducer.hpp,
kDefaultFirstBucketBytes and kDefaultBucketBytesCap), unless gradients are views into them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import nn

from memlens.errors import UsageError
from memlens.model import Category
from memlens.scenarios.shims.registry import Shims, shim
from memlens.units import MIB

FIRST_BUCKET_BYTES = MIB
# what one communicator with an all-reduce was seen to take outside the allocator (NVIDIA/nccl#864; the
# hardware is not stated there, other reports are lower)
MOST_NCCL_BYTES = 1600 * 10**6


class Done:
    """The handle of a collective that is over at once."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Parallel(nn.Module):
    """DistributedDataParallel over one process: the module, and its buckets."""

    def __init__(
        self,
        module: nn.Module,
        *_: Any,
        bucket_cap_mb: float | None = None,
        gradient_as_bucket_view: bool = False,
        **__: Any,
    ) -> None:
        super().__init__()
        self.module = module
        self.require_backward_grad_sync = True
        self.device = next((p.device for p in module.parameters()), torch.device("cpu"))
        trained = [p for p in module.parameters() if p.requires_grad]
        cap = int((bucket_cap_mb or 25) * MIB)
        self._buckets = [] if gradient_as_bucket_view else list(buckets(trained, cap))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        yield

    def join(self, *_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Hooks compress what is sent; nothing is."""


def buckets(parameters: list[nn.Parameter], cap: int) -> Iterator[torch.Tensor]:
    """Flat buffers for the gradients, from the last parameter to the first, one dtype at a time."""
    for dtype in dict.fromkeys(p.dtype for p in parameters):
        filled, limit = 0, FIRST_BUCKET_BYTES
        mine = [p for p in reversed(parameters) if p.dtype == dtype]
        for number, parameter in enumerate(mine):
            filled += parameter.numel() * parameter.element_size()
            if filled >= limit or number == len(mine) - 1:
                yield torch.zeros(filled // dtype.itemsize, dtype=dtype, device=parameter.device)
                filled, limit = 0, cap


@shim("torch")
def parallel(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """Put `Parallel` where people import DistributedDataParallel from."""

    class DistributedDataParallel(Parallel):
        """Says what it is to the simulation that it runs in."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            shims.sim.label(self._buckets, Category.COMMUNICATION)
            _say(shims)

    names = ("nn.parallel.DistributedDataParallel", "nn.parallel.distributed.DistributedDataParallel")
    return dict.fromkeys(names, DistributedDataParallel)


def _say(shims: Shims) -> None:
    shims.say(
        "one process of a distributed run, alone",
        "collectives are left out; NCCL's own buffers, outside the allocator, come on top with several cards",
        high_bytes=MOST_NCCL_BYTES,
    )


@shim("torch.distributed")
def alone(shims: Shims, dist: ModuleType) -> dict[str, Any]:
    """A process group of one."""
    begun: list[bool] = []

    def begin(*_: Any, **__: Any) -> None:
        begun.append(True)
        _say(shims)

    def fill(outputs: list[Any], value: Any, *_: Any, **__: Any) -> Done:
        if isinstance(value, torch.Tensor):
            outputs[0].copy_(value)
        else:
            outputs[0] = value
        return Done()

    def copy(output: torch.Tensor, value: Any, *_: Any, **__: Any) -> Done:
        output.copy_(value[0] if isinstance(value, list) else value)
        return Done()

    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError(
            "sharding over several GPUs is not simulated for scripts", hint="predict one process without it"
        )

    table: dict[str, Any] = {
        "init_process_group": begin,
        "destroy_process_group": lambda *_, **__: begun.clear(),
        "is_initialized": lambda: bool(begun),
        "is_available": lambda: True,
        "is_nccl_available": lambda: True,
        "is_torchelastic_launched": lambda: False,
        "get_rank": lambda *_, **__: 0,
        "get_world_size": lambda *_, **__: 1,
        "get_backend": lambda *_, **__: "nccl",
        "new_group": lambda *_, **__: None,
        "all_gather": fill,
        "all_gather_object": fill,
        "all_gather_into_tensor": copy,
        "reduce_scatter_tensor": copy,
        "reduce_scatter": copy,
        "all_to_all_single": copy,
        "init_device_mesh": refuse,
    }
    nothing = "all_reduce broadcast reduce barrier monitored_barrier broadcast_object_list"
    table |= {name: lambda *_, **__: Done() for name in nothing.split()}
    return {name: value for name, value in table.items() if hasattr(dist, name)}
