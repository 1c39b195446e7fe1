"""Simulating leaves no trace: what is remembered before and put back after, also after a failure."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import torch

_SDP_SWITCHES = {
    "flash_sdp": "_set_sdp_use_flash",
    "mem_efficient_sdp": "_set_sdp_use_mem_efficient",
    "math_sdp": "_set_sdp_use_math",
    "cudnn_sdp": "_set_sdp_use_cudnn",
}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Random states, autocast, grad mode and the backends' switches are as they were when this ends."""
    rng = torch.get_rng_state()
    python_rng = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_rng = numpy.random.get_state() if numpy is not None else None
    grad = torch.is_grad_enabled()
    dtype = torch.get_default_dtype()
    autocast = [
        (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cuda", "cpu")
    ]
    cudnn = {
        name: getattr(torch.backends.cudnn, name)
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
    }
    attention = {name: getattr(torch._C, f"_get_{name}_enabled")() for name in _SDP_SWITCHES}
    order = torch._C._get_sdp_priority_order()
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_rng_state(rng)
        random.setstate(python_rng)
        if numpy is not None and numpy_rng is not None:
            numpy.random.set_state(numpy_rng)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        for kind, enabled, cast in autocast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, cast)
        with torch.backends.__allow_nonbracketed_mutation():  # torch.backends.disable_global_flags forbids it
            for name, value in cudnn.items():
                setattr(torch.backends.cudnn, name, value)
        for name, value in attention.items():
            getattr(torch._C, _SDP_SWITCHES[name])(value)
        torch._C._set_sdp_priority_order(order)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
