"""The tables of rules, and the decorators that fill them.

A rule is a function. Its first parameter is `cuda`, the card and ways to allocate on it (`core.cuda.Cuda`);
the others are arguments of the operator, by the names in its schema, as many as the rule needs:

>>> from memlens.simulation.rules.registry import scratch
>>> @scratch("aten::trapezoid.x", why="an example: dx is a tensor, and so is the sum of neighbours")
... def trapezoid(cuda, y, dim):
...     return y.numel() * y.element_size(), y.numel() * y.element_size()

(`print(torch.ops.aten.trapezoid.x._schema)` prints the names.) Arguments that the caller leaves out have the
schema's defaults. A misspelt operator or argument is refused at import:

>>> @scratch("aten::no_such_operator", why="an example")
... def nothing(cuda): return 0
Traceback (most recent call last):
    ...
ValueError: aten::no_such_operator is no operator of this torch; a rule names one as aten::NAME or ...
>>> @scratch("aten::kthvalue", why="an example")
... def kthvalue(cuda, input): return 0
Traceback (most recent call last):
    ...
ValueError: rule kthvalue: aten::kthvalue has no argument `input`; it has self, k, dim, keepdim

A rule of several operators may name what only some of them have, with a default: `dim=None`. What they name
differently is taken by place, before a slash: `def factorisation(cuda, matrices, /)`.

The decorators differ in when the rule runs and what it returns:

- `@scratch("aten::sort.stable", why=...)` states what the CUDA kernel allocates beside its outputs: bytes, a
  tuple of sizes that live at the same time, or a list of such tuples that follow one another. A last
  parameter `outputs` gets what the operator returned. It holds for the variants that write into `out=` or
  in place as well, unless they have rules of their own.
- `@operator("aten::item")` replaces the meta kernel: returns what the operator returns. Below autograd.
- `@library_operator("bitsandbytes::gemm_4bit")` does the same for an operator of a library that is imported
  later, on the device only: found and bound by name when it is first called.
- `@fallback("aten::nonzero")` is the same, but asked only when torch's meta kernel has given up.
- `@sparse("aten::clone")` answers where an argument is a sparse tensor: `core/sparse.py` has its parts.
- `@composite("aten::dropout", why=...)` replaces an operator that C++ would decompose by device. It runs
  above autograd and is differentiable.

Facts about operators that need no function (which ask cuBLAS, which return aliases) are in `facts`.

To see which operators and overloads a program runs, give the simulation a function:

    with memlens.simulate(gpu="A100 40GB") as sim:
        sim.watch = lambda operator, args, kwargs, outputs: print(operator)  # aten.sort.stable
        program()

A scratch rule does not run for tensors on the host; for an operator that returns a view (`Kind.VIEW` in
`dispatch.operators`); for one that an `@operator` or `@fallback` rule answers, which allocates itself; and
for a composite operator, which arrives as the operators it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from torch._ops import OpOverload

from memlens.model import Category
from memlens.simulation.core.cuda import Cuda
from memlens.simulation.core.torch_operators import find_operator, functional_of
from memlens.simulation.rules.binding import Arguments, Bound, Keywords, Signature

F = TypeVar("F", bound=Callable[..., Any])


class Replacement(NamedTuple):
    """A rule in place of an operator's kernel: everywhere, or only for a first argument on the card."""

    call: Bound
    on_device: bool


class Scratch(NamedTuple):
    """What a kernel allocates beside its outputs, why, as what it is counted, and the rule's parameters."""

    sizes: Bound
    why: str
    category: Category
    signature: Signature


OPERATORS: dict[OpOverload, Replacement] = {}
SCRATCH: dict[OpOverload, Scratch] = {}
COMPOSITES: dict[OpOverload, Bound] = {}
SPARSE: dict[OpOverload, Bound] = {}
# libraries are imported after the rules, so these are known by name and bound when first called
LIBRARIES: dict[str, Signature] = {}
FALLBACKS: dict[str, Signature] = {}


def _existing(names: tuple[str, ...], optional: bool) -> list[OpOverload]:
    operators = [find_operator(name, optional=optional) for name in names]
    return [operator for operator in operators if operator is not None]


def _register(table: dict[OpOverload, Any], operators: list[OpOverload], make: Callable[[Bound], Any],
              signature: Signature) -> None:  # fmt: skip
    signature.check(operators)
    for operator in operators:
        if operator in table:
            raise ValueError(f"{operator.name()} has a rule of this kind already")
        table[operator] = make(signature.bind(operator))


def _register_names(table: dict[str, Signature], names: tuple[str, ...], signature: Signature) -> None:
    for name in names:
        if name in table:
            raise ValueError(f"{name} has a rule of this kind already")
        table[name] = signature


def operator(*names: str, on_device: bool = False, optional: bool = False) -> Callable[[F], F]:
    """Replace the meta kernel of these operators.

    `on_device`: only where the first argument lives on the device; the host keeps torch's own kernel.
    `optional`: not every supported torch has them.
    """

    def register(function: F) -> F:
        signature = Signature(function)
        _register(OPERATORS, _existing(names, optional), lambda call: Replacement(call, on_device), signature)
        return function

    return register


def library_operator(*names: str) -> Callable[[F], F]:
    """Replace the meta kernel of these operators of a library, for tensors on the device."""

    def register(function: F) -> F:
        _register_names(LIBRARIES, names, Signature(function))
        return function

    return register


def fallback(*names: str) -> Callable[[F], F]:
    """Answer for these operators where the meta kernel cannot: their output's size depends on data."""

    def register(function: F) -> F:
        signature = Signature(function)
        ours = tuple(name for name in names if name.startswith("aten::"))
        signature.check(_existing(ours, optional=False))
        _register_names(FALLBACKS, names, signature)
        return function

    return register


def scratch(
    *names: str, why: str, category: Category = Category.TEMPORARY, optional: bool = False
) -> Callable[[F], F]:
    """State what the CUDA kernels of these operators allocate beside their outputs, and `why`."""

    def register(function: F) -> F:
        signature = Signature(function, gets_outputs=True)

        def make(call: Bound) -> Scratch:
            return Scratch(call, why, category, signature)

        _register(SCRATCH, _existing(names, optional), make, signature)
        return function

    return register


def composite(*names: str, why: str, optional: bool = False) -> Callable[[F], F]:
    """Replace an operator that C++ decomposes by device, above autograd; `why` says what CUDA does."""

    def register(function: F) -> F:
        function.__doc__ = f"{function.__doc__ or ''}\n\n{why}".strip()
        _register(COMPOSITES, _existing(names, optional), lambda call: call, Signature(function))
        return function

    return register


def sparse(*names: str) -> Callable[[F], F]:
    """Replace these operators where an argument is a sparse tensor without data."""

    def register(function: F) -> F:
        signature = Signature(function)
        _register(SPARSE, _existing(names, False), lambda call: call, signature)
        return function

    return register


def passes_sparse(operators: Iterable[OpOverload]) -> None:
    """Let torch's own kernels answer for these, which make nothing of their own of a sparse tensor."""
    for operator in operators:
        SPARSE[operator] = lambda cuda, args, kwargs, own=operator: own(*args, **kwargs)


def replacement_of(func: OpOverload) -> Replacement | None:
    """The rule that stands in for an operator's kernel, of torch or of a library."""
    rule = LIBRARIES.get(func.name())
    return Replacement(rule.bind(func), True) if rule is not None else OPERATORS.get(func)


def scratch_of(func: OpOverload) -> Scratch | None:
    """The scratch rule of an operator: its own, or that of the variant which returns what this one writes."""
    if func in SCRATCH:
        return SCRATCH[func]
    same = functional_of(func)
    known = None if same is None else SCRATCH.get(same)
    return None if known is None else known._replace(sizes=known.signature.bind(func))


def fallback_of(func: OpOverload) -> Bound | None:
    rule = FALLBACKS.get(func.name())
    return None if rule is None else rule.bind(func)


def run_composite(cuda: Cuda, func: OpOverload, args: Arguments, kwargs: Keywords) -> Any:
    """A composite operator as CUDA decomposes it; as C++ does for tensors that are not on the device."""
    rule = COMPOSITES.get(func)
    if rule is None or not cuda.has(args[0]):
        return func.decompose(*args, **kwargs)
    return rule(cuda, args, kwargs)
