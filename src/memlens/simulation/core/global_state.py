"""Simulating leaves no trace: what is remembered before and put back after, also after a failure."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _python_dispatch as dispatch_modes

if TYPE_CHECKING:
    from memlens.patching import Patches

_SDP_SWITCHES = {
    "flash_sdp": "_set_sdp_use_flash",
    "mem_efficient_sdp": "_set_sdp_use_mem_efficient",
    "math_sdp": "_set_sdp_use_math",
    "cudnn_sdp": "_set_sdp_use_cudnn",
}


# what entering a TorchDispatchMode sets, beside the stack of modes
_DISPATCH_FLAGS = (
    "_is_in_torch_dispatch_mode",
    "_is_in_non_infra_torch_dispatch_mode",
    "_is_in_any_mode_without_ignore_compile_internals",
)


def remember(patches: Patches[Any]) -> None:
    """Random states, autocast, grad mode and the backends' switches are as they are now at the end."""
    restore = patches.afterwards
    rng = torch.get_rng_state()
    restore(lambda: torch.set_rng_state(rng))
    python_rng = random.getstate()
    restore(lambda: random.setstate(python_rng))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy_rng = numpy.random.get_state()
        restore(lambda: numpy.random.set_state(numpy_rng))
    grad = torch.is_grad_enabled()
    restore(lambda: torch.set_grad_enabled(grad))
    dtype = torch.get_default_dtype()
    restore(lambda: torch.set_default_dtype(dtype))
    autocast = [
        (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cuda", "cpu")
    ]
    restore(lambda: _set_autocast(autocast))
    names = ("enabled", "benchmark", "deterministic", "allow_tf32")
    cudnn = {name: getattr(torch.backends.cudnn, name) for name in names}
    restore(lambda: _set_cudnn(cudnn))
    attention = {name: getattr(torch._C, f"_get_{name}_enabled")() for name in _SDP_SWITCHES}
    restore(lambda: [getattr(torch._C, _SDP_SWITCHES[name])(on) for name, on in attention.items()])
    order = torch._C._get_sdp_priority_order()
    restore(lambda: torch._C._set_sdp_priority_order(order))
    threads = torch.get_num_threads()
    restore(lambda: _set_threads(threads))


def remember_modes(patches: Patches[Any]) -> None:
    """Modes that are entered from now on are left at the end."""
    dispatch, function = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    flags = {name: vars(dispatch_modes)[name] for name in _DISPATCH_FLAGS if name in vars(dispatch_modes)}

    def leave() -> None:
        while torch._C._len_torch_function_stack() > function:
            torch._C._pop_torch_function_stack()
        while torch._C._len_torch_dispatch_stack() > dispatch:
            dispatch_modes._pop_mode()
        vars(dispatch_modes).update(flags)
        if (compiler := flags.get(_DISPATCH_FLAGS[-1])) is not None:
            vars(dispatch_modes)["set_is_in_mode_without_ignore_compile_internals"](compiler)

    patches.afterwards(leave)


def _set_threads(threads: int) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def _set_autocast(states: list[tuple[str, bool, torch.dtype]]) -> None:
    for kind, enabled, cast in states:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, cast)


def _set_cudnn(switches: dict[str, bool]) -> None:
    with torch.backends.__allow_nonbracketed_mutation():  # torch.backends.disable_global_flags forbids it
        for name, value in switches.items():
            setattr(torch.backends.cudnn, name, value)
