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


def functional_of(operator: OpOverload) -> OpOverload | None:
    """The overload that returns what this one writes: of `cumsum.out` and `cumsum_` it is `cumsum`.

    >>> functional_of(torch.ops.aten.sort.values_stable), functional_of(torch.ops.aten.cumsum_.default)
    (<OpOverload(op='aten.sort', overload='stable')>, <OpOverload(op='aten.cumsum', overload='default')>)
    >>> functional_of(torch.ops.aten.mm.default)
    """
    schema = operator._schema
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    namespace, _, name = schema.name.partition("::")
    if not written:
        return None
    if all(argument.kwarg_only for argument in written):  # out=
        arguments = [a for a in schema.arguments if a not in written]
    elif name.endswith("_") and written == [schema.arguments[0]]:
        name, arguments = name.removesuffix("_"), list(schema.arguments)
    else:
        return None
    wanted = [(a.name, str(a.type)) for a in arguments]
    packet = getattr(getattr(torch.ops, namespace), name, None)
    for overload in packet.overloads() if packet is not None else ():
        its_schema = getattr(packet, overload)._schema
        if [(a.name, str(a.type)) for a in its_schema.arguments] == wanted:
            same: OpOverload = getattr(packet, overload)
            return same if same is not operator else None
    return None


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
