"""The tables of rules, and the decorators that fill them.

- `@operator("aten::item")` replaces the meta kernel of an operator: the function gets (sim, args, kwargs)
  and returns what the operator returns. Runs below autograd.
- `@library_operator("bitsandbytes::gemm_4bit")` does the same for an operator of a library that is imported
  later, on the device only: found by name.
- `@fallback("aten::nonzero")` is asked only when torch's meta kernel has given up; same arguments.
- `@scratch("aten::sort.stable", why=...)` states what the CUDA kernel allocates beside its outputs: the
  function gets (sim, args, kwargs, outputs) and returns bytes, a tuple of sizes that live at the same time,
  or a list of such tuples that follow one another.
- `@composite("aten::dropout", why=...)` replaces an operator that C++ would decompose by device: the function
  gets (sim, *the operator's own arguments) and is differentiable, for it runs above autograd.

>>> from memlens.simulation.rules.registry import scratch
>>> @scratch("aten::no_such_operator", why="an example")
... def nothing(sim, args, kwargs, outputs): return 0
Traceback (most recent call last):
    ...
ValueError: aten::no_such_operator is no operator of this torch; a rule names one as aten::NAME or ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch._ops import OpOverload

from memlens.model import Category

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

F = TypeVar("F", bound=Callable[..., Any])
Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


class Scratch(NamedTuple):
    """What a kernel allocates beside its outputs, why, and as what it is counted."""

    sizes: Callable[[Simulation, Arguments, Keywords, Any], int | tuple[int, ...] | list[tuple[int, ...]]]
    why: str
    category: Category


OPERATORS: dict[OpOverload, Callable[[Simulation, Arguments, Keywords], Any]] = {}
LIBRARIES: dict[str, Callable[[Simulation, Arguments, Keywords], Any]] = {}  # by name: libraries come late
FALLBACKS: dict[str, Callable[[Simulation, Arguments, Keywords], Any]] = {}  # by name, too
ON_DEVICE: set[OpOverload] = set()  # replaced for tensors on the device only
SCRATCH: dict[OpOverload, Scratch] = {}
COMPOSITES: dict[OpOverload, Callable[..., Any]] = {}


def find_operator(name: str, *, optional: bool = False) -> OpOverload | None:
    """`aten::mm` or `aten::sort.stable` as torch knows it; None if `optional` and this torch has none."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError:
        if optional:
            return None
        raise ValueError(
            f"{name} is no operator of this torch; a rule names one as aten::NAME or aten::NAME.OVERLOAD"
        ) from None
    assert isinstance(found, OpOverload)
    return found


def _register(table: dict[OpOverload, Any], names: tuple[str, ...], value: Any, optional: bool) -> None:
    for name in names:
        found = find_operator(name, optional=optional)
        if found is None:
            continue
        if found in table:
            raise ValueError(f"{name} has a rule of this kind already")
        table[found] = value


def operator(*names: str, on_device: bool = False, optional: bool = False) -> Callable[[F], F]:
    """Replace the meta kernel of these operators.

    `on_device`: only where the first argument lives on the device; the host keeps torch's own kernel.
    `optional`: not every supported torch has them.
    """

    def register(function: F) -> F:
        _register(OPERATORS, names, function, optional)
        if on_device:
            ON_DEVICE.update(filter(None, (find_operator(name, optional=optional) for name in names)))
        return function

    return register


def library_operator(*names: str) -> Callable[[F], F]:
    """Replace the meta kernel of these operators of a library, for tensors on the device."""

    def register(function: F) -> F:
        for name in names:
            if name in LIBRARIES:
                raise ValueError(f"{name} has a rule of this kind already")
            LIBRARIES[name] = function
        return function

    return register


def fallback(*names: str) -> Callable[[F], F]:
    """Answer for these operators where the meta kernel cannot: their output's size depends on data."""

    def register(function: F) -> F:
        for name in names:
            find_operator(name, optional=not name.startswith("aten::"))
            if name in FALLBACKS:
                raise ValueError(f"{name} has a rule of this kind already")
            FALLBACKS[name] = function
        return function

    return register


def scratch(
    *names: str, why: str, category: Category = Category.TEMPORARY, optional: bool = False
) -> Callable[[F], F]:
    """State what the CUDA kernels of these operators allocate beside their outputs, and `why`."""

    def register(function: F) -> F:
        _register(SCRATCH, names, Scratch(function, why, category), optional)
        return function

    return register


def composite(*names: str, why: str, optional: bool = False) -> Callable[[F], F]:
    """Replace an operator that C++ decomposes by device, above autograd; `why` says what CUDA does."""

    def register(function: F) -> F:
        function.__doc__ = f"{function.__doc__ or ''}\n\n{why}".strip()
        _register(COMPOSITES, names, function, optional)
        return function

    return register


def run_composite(sim: Simulation, func: OpOverload, args: Arguments, kwargs: Keywords) -> Any:
    """A composite operator as CUDA decomposes it; as C++ does for tensors that are not on the device."""
    found = COMPOSITES.get(func)
    if found is None or not sim.is_cuda(args[0]):
        return func.decompose(*args, **kwargs)
    return found(sim, *args, **kwargs)
