"""Operators by the names that torch gives them. A name that torch does not know is refused.

The rules are written against the newest torch, and there every name is checked. An older one lacks some of
the operators, and what it lacks its programs cannot call: their names are left out.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload

CHECKED = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)


def find_operator(name: str, *, optional: bool = False) -> OpOverload | None:
    """`aten::mm` or `aten::sort.stable` as torch knows it; None if `optional` and this torch has none."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    except AttributeError:
        if optional or not CHECKED:
            return None
        raise ValueError(
            f"{name} is no operator of this torch; a rule names one as aten::NAME or aten::NAME.OVERLOAD"
        ) from None
    assert isinstance(operator, OpOverload)
    return operator


def find_operators(names: str) -> tuple[OpOverload, ...]:
    """The ATen overloads of a list: `mm sort.stable`."""
    operators = [find_operator(f"aten::{name}") for name in names.split()]
    return tuple(operator for operator in operators if operator is not None)


def operator_names(names: str, *, optional: str = "") -> frozenset[str]:
    """The ATen operators of a list, all overloads of each; `optional` ones are not in every supported torch.

    >>> sorted(operator_names("mm addmm", optional="an_operator_of_tomorrow"))
    ['addmm', 'mm']
    >>> operator_names("mm admm")
    Traceback (most recent call last):
        ...
    ValueError: aten::admm is no operator of this torch; a fact names ATen operators without overload
    """
    for name in names.split() if CHECKED else ():
        if not _exists(name):
            raise ValueError(
                f"aten::{name} is no operator of this torch; a fact names ATen operators without overload"
            )
    return frozenset(filter(_exists, [*names.split(), *optional.split()]))


def _exists(name: str) -> bool:
    return bool(torch._C._jit_get_schemas_for_operator(f"aten::{name}"))  # 10 us, half of `torch.ops.aten`
