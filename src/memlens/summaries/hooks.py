"""Watches a model run: hooks on modules and on what autograd saves, a mode that sees torch's functions."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode

from memlens.summaries.recorder import Recorder


@contextlib.contextmanager
def watching(recorder: Recorder, stays: bool = False) -> Iterator[None]:
    """Record all that runs inside, and take every hook away again.

    With `stays` nothing leaves the device: `x.cpu()` is `x`, and what is made without a device is made there.
    """
    handles = [
        hooks.register_module_forward_pre_hook(recorder.begin_module),
        hooks.register_module_forward_hook(recorder.end_module, always_call=True),
    ]
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_saver(recorder), _same))
            if stays:
                stack.enter_context(torch.device("cuda"))
                stack.enter_context(_Staying())
            stack.enter_context(_Functions(recorder))
            yield
        recorder.settle()
    finally:
        for handle in handles:
            handle.remove()
        recorder.sim.watch = None


def _saver(recorder: Recorder) -> Callable[[torch.Tensor], torch.Tensor]:
    """`recorder.save` without keeping the recorder: torch 2.13 never lets go of a pack hook it called."""
    find = weakref.ref(recorder)

    def save(tensor: torch.Tensor) -> torch.Tensor:
        alive = find()
        return tensor if alive is None else alive.save(tensor)

    return save


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class _Functions(TorchFunctionMode):
    """Sees every function of torch that Python code calls, the outermost ones only."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        name = func.__name__
        if recorder.top.absorbs or name == "__get__" or name == "__set__":
            return func(*args, **kwargs)
        node = recorder.begin_operator(name.strip("_"), args, kwargs)
        output = None
        try:
            output = func(*args, **kwargs)
            return output
        finally:
            recorder.end_operator(node, output)


class _Staying(TorchFunctionMode):
    """Keeps tensors where they are when code sends them to the CPU; a dtype that is asked for is given."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cpu:
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *(value for value in args[1:] if not _is_cpu(value)))
            if _is_cpu(kwargs.get("device")):
                del kwargs["device"]
            if len(args) == 1 and not kwargs:
                return args[0]
        return func(*args, **kwargs)


def _is_cpu(value: Any) -> bool:
    return value == "cpu" or (isinstance(value, torch.device) and value.type == "cpu")
