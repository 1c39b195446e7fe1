"""What is known of an operator before it runs: looked up once, from its schema and the tables of rules."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from memlens.errors import UnsupportedOperator
from memlens.simulation.core.cuda import Cuda
from memlens.simulation.dispatch.composed import composition
from memlens.simulation.rules import facts
from memlens.simulation.rules.dtypes.judges import checks_of
from memlens.simulation.rules.registry import COMPOSITES, SPARSE, fallback_of, replacement_of, scratch_of

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class Kind(Enum):
    """What the schema says of an operator's outputs."""

    FRESH = auto()  # new storages
    INPLACE = auto()  # its first argument, written to
    VIEW = auto()  # an alias of an argument
    OTHER = auto()  # out= variants and operators that resize: ask every time


class Operator:
    """What is known of one operator in one simulation, looked up once."""

    __slots__ = (
        "check",
        "composed",
        "composite",
        "cuda",
        "fallback",
        "fills",
        "follows",
        "in_place_in_backward",
        "indexes",
        "kind",
        "lists",
        "mixes",
        "name",
        "no_numbers",
        "on_device",
        "replace",
        "scratch",
        "sparse",
        "uses_blas",
    )

    def __init__(self, func: OpOverload, sim: Simulation) -> None:
        self.name = name = func._schema.name.removeprefix("aten::")
        self.kind = _kind(func)
        # the rules for it, and what they get
        rule = replacement_of(func)
        self.replace = None if rule is None else rule.call
        self.on_device = rule is not None and rule.on_device
        self.fallback = fallback_of(func)
        self.scratch = scratch_of(func)
        self.sparse = SPARSE.get(func)  # asked where an argument is a sparse tensor
        self.check = checks_of(func)
        self.composite = func in COMPOSITES or torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), _COMPOSITE
        )
        self.composed = composition(func)
        self.cuda = cuda_of(func, sim)
        # facts
        self.uses_blas = name in facts.BLAS or name.removesuffix("_") in facts.BLAS
        self.follows = name in facts.FOLLOWED
        self.fills = name in facts.FILLS
        self.mixes = facts.may_mix(name)
        self.indexes = name in facts.INDEXING
        self.no_numbers = name in facts.NO_NUMBERS
        self.in_place_in_backward = func is facts.ACCUMULATES or func in facts.FILL_ZEROS_IN_BACKWARD
        self.lists = name.startswith("_foreach_")  # optimizers', always well-formed, slow to check


def cuda_of(func: OpOverload, sim: Simulation) -> Cuda:
    """What the rules of an operator get beside its arguments."""
    return Cuda(sim, func._schema.name.rpartition("::")[2])


def _kind(func: OpOverload) -> Kind:
    schema = func._schema
    name = schema.name.removeprefix("aten::")
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if name in facts.RESIZES or any(a.kwarg_only for a in written):
        return Kind.OTHER
    if torch.Tag.inplace_view in func.tags:
        return Kind.VIEW  # `transpose_` and its like change what the tensor is, each time
    if written:
        first = written[0] is schema.arguments[0]
        simple = not schema.returns or all(r.alias_info is not None for r in schema.returns)
        return Kind.INPLACE if first and simple and len(schema.returns) <= 1 else Kind.OTHER
    if name in facts.ALIASES or any(r.alias_info is not None for r in schema.returns):
        return Kind.VIEW
    return Kind.FRESH


def look_up(func: Any, sim: Simulation) -> Operator:
    """The operator of an overload; what is for the compiler only is refused by name."""
    if isinstance(func, OpOverload):
        return Operator(func, sim)
    where = sim.site(str(func)).where
    raise UnsupportedOperator(
        f"{func}{f' at {where}' if where else ''} is for the compiler and is not simulated",
        hint="use scaled_dot_product_attention in place of flex_attention to estimate it",
    )
