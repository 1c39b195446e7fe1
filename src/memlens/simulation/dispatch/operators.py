"""What is known of an operator before it runs: looked up once, from its schema and the tables of rules."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from memlens.errors import UnsupportedOperator
from memlens.simulation.core import device_checks
from memlens.simulation.core.known_values import FOLLOWED
from memlens.simulation.dispatch.composed import composition
from memlens.simulation.rules.registry import COMPOSITES, LIBRARIES, ON_DEVICE, OPERATORS, SCRATCH, Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlens.simulation.core.session import Simulation

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class Kind(Enum):
    """What the schema says of an operator's outputs."""

    FRESH = auto()  # new storages
    INPLACE = auto()  # its first argument, written to
    VIEW = auto()  # an alias of an argument
    OTHER = auto()  # out= variants and operators that resize: ask every time


class Operator:
    """What is known of one operator, looked up once."""

    __slots__ = (
        "composed",
        "composite",
        "fills",
        "follows",
        "kind",
        "lists",
        "mixes",
        "name",
        "on_device",
        "replace",
        "scratch",
        "uses_blas",
    )

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        self.name = schema.name.removeprefix("aten::")
        self.kind = _kind(func)
        self.replace: Callable[..., Any] | None = OPERATORS.get(func) or LIBRARIES.get(func.name())
        self.scratch: Scratch | None = SCRATCH.get(func)
        self.uses_blas = self.name in BLAS
        self.follows = self.name in FOLLOWED
        self.fills = self.name in ("fill_", "zero_")
        self.mixes = device_checks.may_mix(self.name)
        self.lists = self.name.startswith("_foreach_")  # optimizers', always well-formed, slow to check
        self.on_device = func in ON_DEVICE or func.name() in LIBRARIES
        self.composite = func in COMPOSITES or func.has_kernel_for_dispatch_key(_COMPOSITE)
        self.composed = composition(func)


# these ask cuBLAS, whose handle gets its workspace on first use (ATen/cuda/CublasHandlePool.cpp)
BLAS = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "_addmm_activation",
    "_scaled_mm", "_int_mm",
    "linalg_lu_factor_ex", "linalg_solve_triangular", "_linalg_solve_ex", "linalg_inv_ex",
}  # fmt: skip
# schemas that promise a fresh output and return an alias of their input
_ALIASES = {"_unsafe_view", "_reshape_alias", "_to_dense", "_conj", "_neg_view"}
_RESIZES = {"set_", "resize_", "resize_as_", "resize_output_", "_resize_output_"}


def _kind(func: OpOverload) -> Kind:
    schema = func._schema
    name = schema.name.removeprefix("aten::")
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if name in _RESIZES or any(a.kwarg_only for a in written):
        return Kind.OTHER
    if torch.Tag.inplace_view in func.tags:
        return Kind.VIEW  # `transpose_` and its like change what the tensor is, each time
    if written:
        first = written[0] is schema.arguments[0]
        simple = not schema.returns or all(r.alias_info is not None for r in schema.returns)
        return Kind.INPLACE if first and simple and len(schema.returns) <= 1 else Kind.OTHER
    if name in _ALIASES or any(r.alias_info is not None for r in schema.returns):
        return Kind.VIEW
    return Kind.FRESH


def look_up(func: Any, sim: Simulation) -> Operator:
    """The operator of an overload; what is for the compiler only is refused by name."""
    if isinstance(func, OpOverload):
        return Operator(func)
    where = sim.site(str(func)).where
    raise UnsupportedOperator(
        f"{func}{f' at {where}' if where else ''} is for the compiler and is not simulated",
        hint="use scaled_dot_product_attention in place of flex_attention to estimate it",
    )
