"""torch.distributed: one process of one, whose collectives have no other rank."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from memlens.errors import UsageError
from memlens.scenarios.shims.registry import Shims, shim
from memlens.simulation.torch_api.data_parallel import ONE_RANK


class Done:
    """The handle of a collective that is over at once."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def fill(outputs: list[Any], value: Any, *_: Any, **__: Any) -> Done:
    if isinstance(value, torch.Tensor):
        outputs[0].copy_(value)
    else:
        outputs[0] = value
    return Done()


def copy(output: torch.Tensor, value: Any, *_: Any, **__: Any) -> Done:
    output.copy_(value[0] if isinstance(value, list) else value)
    return Done()


def gather(value: Any, outputs: Any = None, *_: Any, **named: Any) -> Done:
    outputs = named.get("gather_list", named.get("object_gather_list", outputs))
    return fill(outputs, value) if outputs else Done()


def scatter(output: Any, values: Any = None, *_: Any, **named: Any) -> Done:
    values = named.get("scatter_list", named.get("scatter_object_input_list", values))
    return fill([output] if isinstance(output, torch.Tensor) else output, values[0])


@shim("torch.distributed")
def alone(shims: Shims, dist: ModuleType) -> dict[str, Any]:
    """A process group of one."""
    begun: list[bool] = []

    def begin(*_: Any, **__: Any) -> None:
        begun.append(True)
        shims.sim.assume(ONE_RANK)

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
        "get_node_local_rank": lambda *_, **__: 0,
        "get_process_group_ranks": lambda *_, **__: [0],
        "get_global_rank": lambda *_, **__: 0,
        "get_group_rank": lambda *_, **__: 0,
        "get_world_size": lambda *_, **__: 1,
        "get_backend": lambda *_, **__: "nccl",
        "new_group": lambda *_, **__: None,
        "all_gather": fill,
        "all_gather_object": fill,
        "all_gather_into_tensor": copy,
        "reduce_scatter_tensor": copy,
        "reduce_scatter": copy,
        "all_to_all_single": copy,
        "all_to_all": lambda outputs, values, *_, **__: fill(outputs, values[0]),
        "gather": gather,
        "gather_object": gather,
        "scatter": scatter,
        "scatter_object_list": scatter,
        "init_device_mesh": refuse,
    }
    nothing = "all_reduce broadcast reduce barrier monitored_barrier broadcast_object_list"
    table |= {name: lambda *_, **__: Done() for name in nothing.split()}
    return {name: value for name, value in table.items() if hasattr(dist, name)}
