"""Operators that C++ decides by device, decided by us: kernels put into torch's dispatcher for a while.

Two kinds. Composite operators (dropout, attention, LSTM) get a kernel for the meta device above autograd.
Autocast's lists get kernels under the key that `torch.autocast("cuda")` switches on; the meta device has no
such key of its own, so it is included for the thread while a simulation runs.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint
from torch._ops import OpOverload

from memlens.simulate.rules import autocast
from memlens.simulate.rules.registry import COMPOSITES

if TYPE_CHECKING:
    from memlens.simulate.session import Simulation

_AUTOCAST = torch._C.DispatchKey.AutocastCUDA


@contextlib.contextmanager
def installed(sim: Simulation) -> Iterator[None]:
    """Register the kernels, and take every one of them away again."""
    library = torch.library.Library("aten", "IMPL")
    included = torch._C._dispatch_tls_is_dispatch_key_included(_AUTOCAST)
    cache = autocast.Cache(sim)
    clear = torch.clear_autocast_cache
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel.*")
            for operator, function in COMPOSITES.items():
                _put(library, operator, function, "AutogradMeta")
            for operator, kernel in autocast.kernels(cache).items():
                _put(library, operator, kernel, "AutocastCUDA")

        def clear_both() -> None:
            clear()
            cache.clear()

        torch.clear_autocast_cache = clear_both
        torch._C._dispatch_tls_set_dispatch_key_included(_AUTOCAST, True)
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_included(_AUTOCAST, included)
        torch.clear_autocast_cache = clear
        cache.clear()
        library._destroy()


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Keep torch from importing torch._dynamo (some two seconds) only to switch it off around a function.

    Optimizers and checkpointing wrap themselves with `torch._disable_dynamo`, which imports the compiler at the
    first call unless the wrapped function says that it was done. Where the compiler is loaded already there
    is nothing to save.
    """
    wrapped: list[Any] = []
    if "torch._dynamo" not in sys.modules:
        candidates = [*vars(torch.optim.Optimizer).values(), *vars(torch.utils.checkpoint).values()]
        inner = [getattr(f, "__wrapped__", None) for f in candidates if callable(f) and _disables_compiler(f)]
        wrapped = [f for f in inner if f is not None and not hasattr(f, "__dynamo_disable")]
    for function in wrapped:
        function.__dynamo_disable = function
    try:
        yield
    finally:
        for function in wrapped:
            del function.__dynamo_disable


def _disables_compiler(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.endswith("_compile.py")


def _put(library: torch.library.Library, operator: OpOverload, function: Any, key: str) -> None:
    """`Library.impl` without its advice against meta kernels for composite operators, which is what these are."""
    assert library.m is not None
    library.m.impl(operator._schema.name.removeprefix("aten::") + _suffix(operator), key, function, False)


def _suffix(operator: OpOverload) -> str:
    return f".{operator._schema.overload_name}" if operator._schema.overload_name else ""
