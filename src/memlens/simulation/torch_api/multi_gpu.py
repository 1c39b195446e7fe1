"""What a GPU's other libraries get in a simulation: NVTX, graphs, copies between cards, one rank of DDP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.errors import UnsupportedOperator, UsageError
from memlens.simulation.torch_api.data_parallel import one_rank
from memlens.simulation.torch_api.device import as_device, check_index

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_COMM = ("torch.nn.parallel.comm", "torch.cuda.comm")
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
    for name, value in between_cards().items():
        table |= {f"{module}.{name}": value for module in _COMM}
    if torch.distributed.is_available():
        table |= {f"{_DDP}.{name}": value for name, value in one_rank(sim).items()}
    return table


def between_cards() -> dict[str, Any]:
    """Copies between cards where there is one (`DataParallel`, say): it has everything already.

    Another index is refused by number; so are sums, which torch itself refuses on a single card.
    """

    def check(devices: Any) -> int:
        for device in devices or ():
            check_index(as_device(device))
        return len(devices or (0,))

    def broadcast(tensor: Tensor, devices: Any = None, *, out: Any = None) -> Any:
        if out is not None:
            return [target.copy_(tensor) for target in out]
        return (tensor,) * check(devices)

    def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 0) -> Any:
        return [list(tensors) for _ in range(check(devices))]

    def scatter(tensor: Tensor, devices: Any = None, *args: Any, **kwargs: Any) -> Any:
        if check(devices) > 1:
            raise one_card("scatter")
        return (tensor,)

    def gather(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Tensor:
        whole = torch.cat(tuple(tensors), dim, **({} if out is None else {"out": out}))
        on_host = destination == -1 or (destination is not None and as_device(destination).type == "cpu")
        return whole.cpu() if on_host else whole

    def reduce_add(inputs: Any, destination: Any = None) -> Tensor:
        if len(inputs) > 1:
            raise one_card("reduce_add")
        return inputs[0]

    functions = (broadcast, broadcast_coalesced, scatter, gather, reduce_add)
    return {function.__name__: function for function in functions}


def one_card(what: str) -> UsageError:
    return UsageError(
        f"{what} is for tensors of different cards, and the simulation has one GPU, cuda:0",
        hint="simulate one process of a distributed run at a time",
    )


class CUDAGraph:
    """A class, for libraries write it in annotations; there is no instance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedOperator(
            "CUDA graphs are not simulated",
            hint="simulate the eager code; a graph keeps its own pool of memory beside",
        )
