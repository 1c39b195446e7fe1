"""Convolutions on CUDA: layouts, the copies they need, and cuDNN's workspaces.

ATen/native/Convolution.cpp and cudnn/ConvShared.cpp: channels last as soon as the input or the weight is;
both are then copied where they are laid out otherwise. Backward runs the input's gradient and the weight's
one after the other, each with a workspace of its own; the bias' gradient is a sum. How large a workspace is,
`workspace.workspace` says, with a range that becomes one assumption of the whole simulation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.model import Category
from memlens.simulation.core.device_checks import check_convolution
from memlens.simulation.core.ledger import HOST
from memlens.simulation.rules.convolution import workspace
from memlens.simulation.rules.convolution.workspace import Direction, Workspace
from memlens.simulation.rules.reductions.operators import reduction_bytes
from memlens.simulation.rules.registry import operator
from memlens.simulation.rules.uncertain_workspace import take

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_aten = torch.ops.aten
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
NAMES = {torch.float64: "float64", torch.float32: "float32", torch.bfloat16: "bfloat16"}


def channels_last(*tensors: Tensor) -> torch.memory_format:
    """The layout that cuDNN is given: channels last if any of the tensors is, and none is float64."""
    if tensors[0].dtype is not torch.float64 and tensors[0].dim() in _LAST:
        last = _LAST[tensors[0].dim()]
        if any(torch._prims_common.suggest_memory_format(tensor) is last for tensor in tensors):
            return last
    return torch.contiguous_format


def _copy(tensor: Tensor, layout: torch.memory_format) -> int:
    dense = tensor.is_contiguous(memory_format=layout)
    return 0 if dense else tensor.numel() * tensor.dtype.itemsize


@lru_cache(maxsize=1024)
def output_shape(
    x: torch.Size,
    w: torch.Size,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
) -> list[int]:
    """The shape of the result, as torch's own meta kernel says."""
    inputs = (torch.empty(x, device="meta"), torch.empty(w, device="meta"))
    out = _aten.convolution.default(
        *inputs, None, stride, padding, dilation, transposed, output_padding, groups
    )
    return list(out.shape)


class _Call:
    """One convolution of the program: its tensors, and how it runs."""

    def __init__(self, sim: Simulation, x: Tensor, w: Tensor, y_shape: Any, rest: Any) -> None:
        self.sim, self.x, self.w = sim, x, w
        self.stride, self.padding, self.dilation, self.transposed, _, self.groups = rest
        self.y_shape = tuple(y_shape)
        self.layout = channels_last(x, w)

    def workspace(self, direction: Direction) -> Workspace:
        cudnn = torch.backends.cudnn
        if not cudnn.enabled or self.x.dtype.is_complex or not self.x.dtype.is_floating_point:
            return Workspace(0, 0, 0, "not cuDNN")
        return _workspace(
            self.sim.gpu.compute_capability,
            direction,
            NAMES.get(self.x.dtype, "float16"),
            self.layout is not torch.contiguous_format,
            _allows_tf32(),
            bool(cudnn.benchmark),
            tuple(self.x.shape),
            tuple(self.w.shape),
            self.y_shape,
            self._each(self.stride),
            self._each(self.dilation),
            self.groups,
            self.transposed,
        )

    def _each(self, values: Any) -> tuple[int, ...]:
        return tuple(values) * (self.x.dim() - 2) if len(values) == 1 else tuple(values)

    def run(self, direction: Direction, name: str) -> None:
        """Take the workspace and give it back."""
        found = self.workspace(direction)
        take(self.sim, "cudnn", name, found.expected_bytes, found.high_bytes, _say)


def _allows_tf32() -> bool:
    """Whether float32 convolutions may use tensor cores: by the newer setting where it is given."""
    setting = getattr(getattr(torch.backends.cudnn, "conv", None), "fp32_precision", None)
    if setting in ("ieee", "tf32"):
        return setting == "tf32"
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return True  # the two settings were mixed: the larger workspace


_workspace = lru_cache(maxsize=2048)(workspace.workspace)


@operator("aten::convolution")
def forward(sim: Simulation, args: Any, kwargs: Any) -> Any:
    """(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)."""
    if sim.ledger.host_bytes or not (args[0].is_meta and args[1].is_meta):
        check_convolution(sim.ledger, args)
    if kwargs or not sim.is_cuda(args[0]):
        return _elsewhere(sim, _aten.convolution.default, args, kwargs)
    x, w, _, *rest = args
    described = [tuple(value) if isinstance(value, list) else value for value in rest]
    call = _Call(sim, x, w, output_shape(x.shape, w.shape, *described), rest)
    held = _hold(sim, "convolution", _copy(x, call.layout))
    out = torch.empty(call.y_shape, dtype=x.dtype, device="meta", memory_format=call.layout)
    sim.adopt(out, "convolution")
    held += _hold(sim, "convolution", _copy(w, call.layout))
    call.run("forward", "convolution")
    for free in held:
        free()
    return out


@operator("aten::convolution_backward", on_device=True)
def backward(sim: Simulation, args: Any, kwargs: Any) -> Any:
    """(grad_output, input, weight, bias_sizes, stride, ..., groups, output_mask): three gradients."""
    grad, x, w, _, *rest, (needs_x, needs_w, needs_bias) = args
    name = "convolution_backward"
    call = _Call(sim, x, w, grad.shape, rest)
    held = _hold(sim, name, _copy(x, call.layout), _copy(w, call.layout), _copy(grad, call.layout))
    found: list[Tensor | None] = [None, None, None]
    for place, wanted, like, direction in (
        (0, needs_x, x, "backward_data"),
        (1, needs_w, w, "backward_weight"),
    ):
        if wanted:
            made = torch.empty(like.shape, dtype=like.dtype, device="meta", memory_format=call.layout)
            found[place] = made
            sim.adopt(made, name)
            call.run(direction, name)  # type: ignore[arg-type]
    for free in held:
        free()
    if needs_bias:
        channels = grad.shape[1]
        found[2] = made = torch.empty(channels, dtype=grad.dtype, device="meta")
        sim.adopt(made, name)
        over = [dim for dim in range(grad.dim()) if dim != 1]
        for free in _hold(sim, name, *reduction_bytes(sim, grad, over, grad.dtype)):
            free()
    return tuple(found)


def _hold(sim: Simulation, name: str, *sizes: int) -> list[Any]:
    """Allocate copies; the calls that free them."""
    return [
        sim.ledger.scratch(size, Category.TEMPORARY, sim.site(name), sim.stream) for size in sizes if size
    ]


def _elsewhere(sim: Simulation, func: Any, args: Any, kwargs: Any) -> Any:
    """On the host: torch's own kernel; a result that is too large to be real is noted there."""
    out = func(*args, **kwargs)
    if out.is_meta and sim.is_host(args[0]):
        sim.ledger.adopt(out.untyped_storage(), HOST)
    return out


def _say(calls: int) -> tuple[str, str]:
    return (
        f"the workspaces of {calls:,} convolution calls follow rules, not cuDNN's own word",
        "cuDNN chooses a kernel, and with it the workspace, by card, version and free memory",
    )
