"""Which variables of a notebook lead to which tensors on the device."""

from __future__ import annotations

import gc
from collections import Counter
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from memlens.measurement.tensors.autograd_graph import kept_by, walk

MOST_OBJECTS = 200_000  # that are looked at for one variable
MOST_VARIABLES = 12
_LEADS_NOWHERE = (ModuleType, type, CodeType, FrameType, BuiltinFunctionType, str, bytes, int, float)
# what IPython puts into a notebook's namespace, beside names that begin with an underscore
_OF_IPYTHON = {"In", "Out", "exit", "quit", "get_ipython"}


def held_by_variables(sim: Any, names: dict[str, Any]) -> list[tuple[str, int, int]]:
    """(name, bytes that it leads to, bytes that no other variable leads to), those that hold most first."""
    variables = {n: v for n, v in list(names.items()) if not n.startswith("_") and n not in _OF_IPYTHON}
    variables |= {f"Out[{number}]": value for number, value in dict(names.get("Out", {})).items()}
    with torch._C.DisableTorchFunction():
        held = {name: blocks(sim, value, names) for name, value in variables.items()}
    ways = Counter(number for sizes in held.values() for number in sizes)
    rows = [
        (name, sum(sizes.values()), sum(size for number, size in sizes.items() if ways[number] == 1))
        for name, sizes in held.items()
        if sizes
    ]
    return sorted(rows, key=lambda row: (-row[1], row[0]))[:MOST_VARIABLES]


def blocks(sim: Any, value: Any, names: dict[str, Any]) -> dict[int, int]:
    """The device's blocks that can be reached from `value`, by the number of their allocation."""
    sizes: dict[int, int] = {}
    seen, stack = {id(names)}, [value]
    nodes: set[Any] = set()
    while stack and len(seen) < MOST_OBJECTS:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, _LEADS_NOWHERE):
            continue
        seen.add(id(thing))
        if isinstance(thing, FunctionType):
            stack += [cell.cell_contents for cell in thing.__closure__ or () if _is_full(cell)]
            continue
        if isinstance(thing, torch.Tensor):
            entry = sim.ledger.of(thing)
            if entry is not None and entry.alloc is not None:
                sizes[entry.alloc.id] = entry.alloc.bytes
            stack.append(thing.grad if thing.is_leaf else None)
            if thing.grad_fn is not None and thing.grad_fn not in nodes:
                for node in walk([thing.grad_fn]):
                    if node not in nodes:
                        nodes.add(node)
                        stack += [*kept_by(node), getattr(node, "variable", None)]
        stack += gc.get_referents(thing)
    return sizes


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (raises where it is empty)
    except ValueError:
        return False
    return True
