"""How a row is written, and how it becomes a check of an operator's arguments.

A row is `check(OPERATORS, ARGUMENTS)(JUDGE)`. It is for all overloads of these operators that have the
arguments as tensors, and runs for tensors on the card before the operator is counted. A judge gets the
arguments' values, and raises what CUDA raises. Errors are templates: `{0}` is the dtype of the first argument
as PyTorch says it (`Half`), `{0.cpp}` as C++ does (`c10::Half`), `{odd}` the dtype that does not fit.

>>> same("expected {0} but found {odd}")(torch.ones(1), torch.ones(1), torch.ones(1).half())
Traceback (most recent call last):
    ...
RuntimeError: expected Float but found Half
>>> only(frozenset({torch.int64}), "got {odd}")(torch.ones(1, dtype=torch.int64), None)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from memlens.simulation.core.torch_operators import operator_names

Judge = Callable[..., None]
Check = Callable[[tuple[Any, ...], dict[str, Any]], None]
Dtypes = frozenset[torch.dtype]

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
WIDE_FLOATS = frozenset({torch.float32, torch.float64})
COMPLEX = frozenset({torch.complex64, torch.complex128})
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
NUMBERS = FLOATS | INTEGERS
INDICES = frozenset({torch.int32, torch.int64})
LONG = frozenset({torch.int64})
BYTE = frozenset({torch.uint8})
BOOL = frozenset({torch.bool})

CHECKS: dict[str, list[tuple[tuple[str, ...], Judge]]] = {}


def check(operators: str, arguments: str, *, optional: str = "") -> Callable[[Judge], Judge]:
    """Register a judge of these arguments of these operators. A name that torch lacks is refused.

    `optional` operators are not in every supported torch.

    `-out_dtype` leaves out the overloads that have this argument.
    """

    def register(judge: Judge) -> Judge:
        for name in operator_names(operators, optional=optional):
            CHECKS.setdefault(name, []).append((tuple(arguments.split()), judge))
        return judge

    return register


# judges --------------------------------------------------------------------------------------------------


def same(error: str) -> Judge:
    """All of them have the dtype of the first; one that is left out fits."""

    def judge(first: Tensor, *others: Tensor | None) -> None:
        for other in others:
            if other is not None and other.dtype is not first.dtype:
                raise RuntimeError(_say(error, other, first, *others))

    return judge


def only(dtypes: Dtypes, error: str) -> Judge:
    """Each of them has one of these dtypes."""

    def judge(*tensors: Tensor | None) -> None:
        for tensor in tensors:
            if tensor is not None and tensor.dtype not in dtypes:
                raise RuntimeError(_say(error, tensor, *tensors))

    return judge


def read_as(first: Tensor, *others: Tensor | None) -> None:
    """The kernel reads all of them in the dtype of the first (`const_data_ptr<scalar_t>`)."""
    for other in others:
        if other is not None and other.dtype is not first.dtype and not _has_empty((first, *others)):
            raise RuntimeError(_say("expected scalar type {0} but found {odd}", other, first))


def implemented(dtypes: Dtypes, kernel: str) -> Judge:
    """The kernel is compiled for these dtypes (`AT_DISPATCH`); it is not asked for an empty tensor."""

    def judge(*tensors: Tensor | None) -> None:
        for tensor in tensors:
            if tensor is not None and tensor.dtype not in dtypes and not _has_empty(tensors):
                raise NotImplementedError(_say(f"\"{kernel}\" not implemented for '{{odd}}'", tensor))

    return judge


def promoted(dtypes: Dtypes, kernel: str) -> Judge:
    """The kernel is compiled for these dtypes, and converts its arguments to the widest of theirs."""

    def judge(*tensors: Tensor) -> None:
        if not any(tensor.dtype in dtypes for tensor in tensors):
            implemented(dtypes, kernel)(*tensors)

    return judge


def _has_empty(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether one has no elements: then no kernel is asked."""
    return any(tensor is not None and tensor.numel() == 0 for tensor in tensors)


# words ---------------------------------------------------------------------------------------------------

_CPP = {
    torch.uint8: ("Byte", "unsigned char"),
    torch.int8: ("Char", "signed char"),
    torch.int16: ("Short", "short"),
    torch.int32: ("Int", "int"),
    torch.int64: ("Long", "long"),
    torch.float16: ("Half", "c10::Half"),
    torch.bfloat16: ("BFloat16", "c10::BFloat16"),
    torch.float32: ("Float", "float"),
    torch.float64: ("Double", "double"),
    torch.bool: ("Bool", "bool"),
    torch.complex64: ("ComplexFloat", "c10::complex<float>"),
    torch.complex128: ("ComplexDouble", "c10::complex<double>"),
}


class _Name(str):
    """A dtype in words: `Half`; its `cpp` is `c10::Half`."""

    cpp: str


def _name(tensor: Tensor | None) -> _Name:
    if tensor is None:
        return _Name("None")
    rare = str(tensor.dtype).removeprefix("torch.").capitalize()  # Float8_e4m3fn
    scalar, cpp = _CPP.get(tensor.dtype, (rare, f"c10::{rare}"))
    name = _Name(scalar)
    name.cpp = cpp
    return name


def _say(error: str, odd: Tensor, *tensors: Tensor | None) -> str:
    return error.format(*map(_name, tensors), odd=_name(odd))


# binding -------------------------------------------------------------------------------------------------


def checks_of(func: OpOverload) -> Check | None:
    """What is checked of an overload's arguments, as one function of them; None if nothing is."""
    rows = CHECKS.get(func._schema.name.removeprefix("aten::"), ())
    bound = [check for row in rows if (check := _bind(func, *row)) is not None]
    if len(bound) < 2:
        return bound[0] if bound else None

    def all_of_them(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for one in bound:
            one(args, kwargs)

    return all_of_them


def _bind(func: OpOverload, names: tuple[str, ...], judge: Judge) -> Check | None:
    arguments = {a.name: number for number, a in enumerate(func._schema.arguments) if str(a.type) != "number"}
    wanted = [name for name in names if not name.startswith("-")]
    if any(name not in arguments for name in wanted) or any(f"-{name}" in names for name in arguments):
        return None
    places = [(arguments[name], name) for name in wanted]

    def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        count = len(args)
        judge(*[args[place] if place < count else kwargs.get(name) for place, name in places])

    return bound
