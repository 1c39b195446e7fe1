"""What tensors are called: `layers.3.weight`, its `.grad`, `exp_avg of layers.3.weight`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from memlens.model import Category


class Paths:
    """The dotted path of every module below the roots: those that no other module holds.

    One root has no name of its own, as in `named_parameters()`; of several, each has its type's, numbered.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.modules = list(modules)
        self._paths: dict[int, str] | None = None

    def of(self, module: nn.Module, key: str) -> str:
        if self._paths is None:
            self._paths = self._find()
        path = self._paths.get(id(module), type(module).__name__)
        return f"{path}.{key}" if path else key

    def _find(self) -> dict[int, str]:
        inner = {id(child) for module in self.modules for child in _children(module).values()}
        roots = [module for module in self.modules if id(module) not in inner and _holds_tensors(module)]
        paths: dict[int, str] = {}
        counts: dict[str, int] = {}
        for root in roots:
            kind = type(root).__name__
            counts[kind] = counts.get(kind, 0) + 1
            number = f"#{counts[kind]}" if counts[kind] > 1 else ""
            stack = [("" if len(roots) == 1 else f"{kind}{number}", root)]
            while stack:
                path, module = stack.pop()
                if id(module) in paths:
                    continue
                paths[id(module)] = path
                for name, child in _children(module).items():
                    if child is not None:
                        stack.append((f"{path}.{name}" if path else name, child))
        return paths


def _children(module: nn.Module) -> dict[str, nn.Module | None]:
    return module.__dict__.get("_modules", {})


def _holds_tensors(root: nn.Module) -> bool:
    """A loss function or an activation alone needs no name."""
    seen, stack = set(), [root]
    while stack:
        module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        if any(module.__dict__.get(kind) for kind in ("_parameters", "_buffers")):
            return True
        stack += [child for child in _children(module).values() if child is not None]
    return False


# a parameter or buffer, what it is, the module that has it, and its name there. Plain tuples, as there are
# thousands in each look
Member: TypeAlias = tuple[Tensor, Category, nn.Module, str]
# a tensor that an optimizer keeps, its name there, and the parameter it is for
State: TypeAlias = tuple[Tensor, str, Tensor]


def members(modules: Iterable[nn.Module]) -> list[Member]:
    """Parameters and buffers of modules."""
    rows = []
    for module in modules:
        own = module.__dict__
        for kind, category in _KINDS:
            if tensors := own.get(kind):
                for key, tensor in tensors.items():
                    if tensor is not None:
                        rows.append((tensor, category, module, key))
    return rows


_KINDS = (("_parameters", Category.PARAMETER), ("_buffers", Category.BUFFER))


def states(optimizers: Iterable[torch.optim.Optimizer]) -> list[State]:
    """Everything in the optimizers' states, however it is nested."""
    rows = []
    for optimizer in optimizers:
        for parameter, state in list(getattr(optimizer, "state", {}).items()):
            for key, value in state.items() if isinstance(state, dict) else (("state", state),):
                if type(value) is Tensor:
                    rows.append((value, key, parameter))
                else:
                    rows += [(tensor, key, parameter) for tensor in tensors_in(value)]
    return rows


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in lists, tuples and dicts, however deep."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def optimized(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[tuple[Tensor, str]]:
    """The parameters that optimizers hold, with a name for those that no module has."""
    for optimizer in optimizers:
        kind = type(optimizer).__name__
        number = 0
        for group in getattr(optimizer, "param_groups", ()):
            for parameter in group["params"]:
                yield parameter, f"parameter {number} of {kind}"
                number += 1
