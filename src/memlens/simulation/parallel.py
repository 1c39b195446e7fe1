"""What a GPU's other libraries get inside a simulation: NVTX, graphs, one rank of DDP."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memlens.errors import UnsupportedOperator
from memlens.model import Assumption, Category

if TYPE_CHECKING:
    from memlens.simulation.session import Simulation

_DDP = "torch.nn.parallel.distributed.DistributedDataParallel"


def replacements(sim: Simulation) -> dict[str, Any]:
    """Dotted names and their stand-ins."""
    table: dict[str, Any] = {
        "torch.cuda.CUDAGraph": CUDAGraph,
        "torch.cuda.graphs.CUDAGraph": CUDAGraph,
        "torch.cuda.nvtx.range_push": lambda message: 0,
        "torch.cuda.nvtx.range_pop": lambda: 0,
        "torch.cuda.nvtx.range_start": lambda message: 0,
        "torch.cuda.nvtx.range_end": lambda range_id: None,
        "torch.cuda.nvtx.mark": lambda message: None,
    }
    if torch.distributed.is_available():
        table |= {f"{_DDP}.{name}": value for name, value in one_rank(sim).items()}
    return table


class CUDAGraph:
    """A class, for libraries write it in annotations; there is no instance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedOperator(
            "CUDA graphs are not simulated",
            hint="simulate the eager code; a graph keeps its own pool of memory beside",
        )


def one_rank(sim: Simulation) -> dict[str, Any]:
    """DistributedDataParallel in one process: the module, and a bucket for every gradient.

    The reducer copies gradients into buckets of the size of all of them, unless gradients are views of the
    buckets (torch/csrc/distributed/c10d/reducer.cpp); nothing is communicated here.
    """

    def init(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        self.module = module
        self.require_backward_grad_sync = True
        trained = [p for p in module.parameters() if p.requires_grad]
        nbytes = (
            0 if kwargs.get("gradient_as_bucket_view") else sum(p.numel() * p.element_size() for p in trained)
        )
        sim.ledger.scratch(nbytes, Category.COMMUNICATION, sim.site("DistributedDataParallel"), sim.stream)
        sim.assume(
            Assumption(
                "DistributedDataParallel is one rank, which communicates with nobody",
                "its buckets are counted; NCCL's buffers lie outside PyTorch's allocator and are not",
            )
        )

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def no_sync(self: Any) -> Any:
        return contextlib.nullcontext()

    return {"__init__": init, "forward": forward, "no_sync": no_sync}
