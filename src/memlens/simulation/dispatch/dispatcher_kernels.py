"""Operators that C++ decides by device, decided by us: kernels put into torch's dispatcher for a while.

Two kinds. Composite operators (dropout, attention, LSTM) get a kernel for the meta device above autograd.
Autocast's lists get kernels under the key that `torch.autocast("cuda")` switches on; the meta device has no
such key of its own, so it is included for the thread while a simulation runs.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.utils import checkpoint

from memlens.patching import Patches, remove
from memlens.simulation.dispatch.operators import cuda_of
from memlens.simulation.rules import autocast
from memlens.simulation.rules.registry import COMPOSITES, run_composite

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_AUTOCAST = torch._C.DispatchKey.AutocastCUDA


def install(patches: Patches[Any], sim: Simulation) -> None:
    """Register the kernels, for as long as the patches last."""
    library = torch.library.Library("aten", "IMPL")
    patches.afterwards(library._destroy)
    cache = autocast.Cache(sim)
    patches.afterwards(cache.clear)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel.*")
        for operator in COMPOSITES:
            _put(library, operator, _composite(sim, operator), "AutogradMeta")
        for operator, kernel in autocast.kernels(cache).items():
            _put(library, operator, kernel, "AutocastCUDA")
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        clear()
        cache.clear()

    patches.replace("torch.clear_autocast_cache", clear_both)
    included = torch._C._dispatch_tls_is_dispatch_key_included(_AUTOCAST)
    patches.afterwards(lambda: torch._C._dispatch_tls_set_dispatch_key_included(_AUTOCAST, included))
    torch._C._dispatch_tls_set_dispatch_key_included(_AUTOCAST, True)


class _Loaded(importlib.abc.Loader):
    """A loader for a module that is there already."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def create_module(self, spec: Any) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        """It ran when it was loaded."""


class _NoCompiler(types.ModuleType):
    """Stands in for `torch._dynamo` as long as all that anybody wants of it is to be switched off."""

    def __init__(self) -> None:
        super().__init__("torch._dynamo")
        self.__path__: list[str] = []  # a package: its parts are asked of `find_spec`
        self.switched_off: list[Any] = []

    def disable(self, function: Any, *_: Any, **__: Any) -> Any:
        self.switched_off.append(function)
        return function

    def graph_break(self, *_: Any, **__: Any) -> None:
        """What optimizers call around a step: outside the compiler it does nothing."""

    def __getattr__(self, name: str) -> Any:
        # inspect looks at the __file__ of every module there is; __path__ is for importing a part of it
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        return getattr(self.give_way(), name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As an import hook: a part of the compiler is wanted, so the real one is loaded first."""
        if not name.startswith("torch._dynamo.") or sys.modules.get("torch._dynamo") is not self:
            return None
        self.give_way()
        return importlib.machinery.ModuleSpec(name, _Loaded(importlib.import_module(name)))

    def give_way(self) -> types.ModuleType:
        """Load the real compiler, for somebody means to use it."""
        self.remove()
        return importlib.import_module("torch._dynamo")

    def remove(self) -> None:
        if sys.modules.get("torch._dynamo") is self:
            del sys.modules["torch._dynamo"]
        if vars(torch).get("_dynamo") is self:
            del torch._dynamo
        for function in self.switched_off:
            vars(function).pop("__dynamo_disable", None)
        self.switched_off.clear()


def without_compiler(patches: Patches[Any]) -> None:
    """Keep torch from importing its compiler (as long as importing torch itself) only to switch it off.

    Meta kernels, optimizers and checkpointing wrap themselves with `torch._disable_dynamo`, which imports
    `torch._dynamo` at the first call. Code that really uses the compiler gets the real one.
    """
    if "torch._dynamo" in sys.modules:
        return
    stand_in = _NoCompiler()
    patches.afterwards(stand_in.remove)
    sys.modules["torch._dynamo"] = torch._dynamo = stand_in
    patches.afterwards(lambda: remove(sys.meta_path, stand_in))
    sys.meta_path.insert(0, stand_in)


def _composite(sim: Simulation, operator: OpOverload) -> Any:
    cuda = cuda_of(operator, sim)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return run_composite(cuda, operator, args, kwargs)

    return kernel


def checkpoints_compare_no_devices(patches: Patches[Any]) -> None:
    """Checkpointing compares what it recomputed with what it saved, by shape, dtype and device.

    Where torch runs its own Python functions a device tensor says `meta`, elsewhere `cuda`; both are the
    simulated card, so only shape and dtype are compared (torch/utils/checkpoint.py, metadata_fn).
    """
    checks: dict[str, Any] = checkpoint._allowed_determinism_checks_to_fns
    default = {checkpoint._DEFAULT_DETERMINISM_MODE: checks[checkpoint._DEFAULT_DETERMINISM_MODE]}
    patches.afterwards(lambda: checks.update(default))
    checks.update(dict.fromkeys(default, lambda x: {"shape": x.shape, "dtype": x.dtype}))


def _put(library: torch.library.Library, operator: OpOverload, function: Any, key: str) -> None:
    """`Library.impl`, but quiet: these kernels stand beside torch's own for a while."""
    assert library.m is not None
    library.m.impl(operator._schema.name.removeprefix("aten::") + _suffix(operator), key, function, False)


def _suffix(operator: OpOverload) -> str:
    return f".{operator._schema.overload_name}" if operator._schema.overload_name else ""
