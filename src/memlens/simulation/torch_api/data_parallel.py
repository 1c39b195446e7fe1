"""DistributedDataParallel in one process: the module, and the buckets of its gradients.

Buckets are memory: a first one of 1 MiB, then of `bucket_cap_mb` (torch/nn/parallel/distributed.py and
torch/csrc/distributed/c10d/reducer.hpp, kDefaultFirstBucketBytes and kDefaultBucketBytesCap). They live as
long as the module. With `gradient_as_bucket_view` a gradient is copied into its bucket when backward has made
it, and is a view of it from then on (reducer.cpp, mark_variable_ready_dense). Nothing is communicated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memlens.model import Assumption, Category
from memlens.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlens.simulation.core.session import Simulation

FIRST_BUCKET_BYTES = MIB
# what one communicator with an all-reduce was seen to take outside the allocator (NVIDIA/nccl#864; the
# hardware is not stated there, other reports are lower)
MOST_NCCL_BYTES = 1600 * 10**6
ONE_RANK = Assumption(
    "one process of a distributed run, alone",
    "collectives are left out; NCCL's own buffers, outside the allocator, come on top with several cards",
    high_bytes=MOST_NCCL_BYTES,
)


def cut(parameters: list[nn.Parameter], cap_bytes: int) -> Iterator[list[nn.Parameter]]:
    """The parameters of each bucket, from the last parameter to the first, one dtype at a time."""
    for dtype in dict.fromkeys(p.dtype for p in parameters):
        bucket: list[nn.Parameter] = []
        filled_bytes, limit_bytes = 0, FIRST_BUCKET_BYTES
        for parameter in reversed([p for p in parameters if p.dtype == dtype]):
            bucket.append(parameter)
            filled_bytes += parameter.numel() * parameter.element_size()
            if filled_bytes >= limit_bytes:
                yield bucket
                bucket, filled_bytes, limit_bytes = [], 0, cap_bytes
        if bucket:
            yield bucket


def buckets(parameters: list[nn.Parameter], cap_bytes: int) -> Iterator[tuple[list[nn.Parameter], Tensor]]:
    """A flat buffer for the gradients of each group of parameters."""
    for group in cut(parameters, cap_bytes):
        size, first = sum(p.numel() for p in group), group[0]
        yield group, torch.zeros(size, dtype=first.dtype, device=first.device)


def _becomes(view: Tensor) -> Callable[[Tensor], None]:
    def hook(parameter: Tensor) -> None:
        if parameter.grad is not None and parameter.grad is not view:
            view.copy_(parameter.grad)
            parameter.grad = view

    return hook


class Parallel(nn.Module):
    """What DistributedDataParallel is here; its methods stand in for the real one's."""

    def __init__(
        self,
        module: nn.Module,
        *_: Any,
        bucket_cap_mb: float | None = None,
        gradient_as_bucket_view: bool = False,
        **__: Any,
    ) -> None:
        nn.Module.__init__(self)
        self.module = module
        self.require_backward_grad_sync = True
        self.device = next((p.device for p in module.parameters()), torch.device("cpu"))
        trained = [p for p in module.parameters() if p.requires_grad]
        self._buckets = []
        for group, bucket in buckets(trained, int((bucket_cap_mb or 25) * MIB)):
            self._buckets.append(bucket)
            if gradient_as_bucket_view:
                for parameter, view in zip(group, bucket.split([p.numel() for p in group]), strict=True):
                    parameter.register_post_accumulate_grad_hook(_becomes(view.view_as(parameter)))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        yield

    def join(self, *_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Hooks compress what is sent; nothing is."""


def one_rank(sim: Simulation) -> dict[str, Any]:
    """The methods of DistributedDataParallel, by name, in this simulation."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        Parallel.__init__(self, *args, **kwargs)
        sim.label(self._buckets, Category.COMMUNICATION)
        sim.assume(ONE_RANK)

    names = ("forward", "no_sync", "join", "register_comm_hook")
    return {"__init__": init} | {name: vars(Parallel)[name] for name in names}
