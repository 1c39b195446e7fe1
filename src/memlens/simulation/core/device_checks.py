"""Tensors of the host and of the device in one operator: which mixes are legal, and PyTorch's words if not.

CUDA kernels take host tensors without dimensions as numbers, and index tensors of the host; everything else
must live on one device (c10/core/impl, `common_device_check_failure`; ATen/TensorIterator.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.core.ledger import CUDA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch._ops import OpOverload

    from memlens.simulation.core.ledger import Ledger


_TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"


def is_elsewhere(ledger: Ledger, metas: list[Tensor]) -> bool:
    """Whether any of these has dimensions and is not on the device: on the host without data, or on meta."""
    return any(_device(ledger, tensor) != "cuda:0" and tensor.dim() > 0 for tensor in metas)


def check_indices(ledger: Ledger, args: tuple[Any, ...]) -> None:
    """A tensor of the host is indexed on the host, and one of the device gets no rows of the host."""
    indices = args[1] if isinstance(args[1], (list, tuple)) else ()
    on_device = any(isinstance(i, Tensor) and _device(ledger, i) != "cpu" for i in indices)
    if _device(ledger, args[0]) == "cpu" and on_device:
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
        )
    devices = [_device(ledger, tensor) for tensor in (args[0], *args[2:3]) if isinstance(tensor, Tensor)]
    if len(set(devices)) > 1 and args[2].numel() > 1:  # `index_put`: one number is moved (IndexingUtils.h)
        raise RuntimeError(_TWO_DEVICES.format(*devices))


def refuse(ledger: Ledger, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what CUDA raises for a tensor of another device that is no number."""
    name = func._schema.name.removeprefix("aten::")
    argument, device = next(
        (argument, _device(ledger, tensor))
        for argument, tensor in _tensors(func, args, kwargs)
        if _device(ledger, tensor) != "cuda:0" and tensor.dim()
    )
    if torch.Tag.pointwise in func.tags:
        raise RuntimeError(_TWO_DEVICES.format("cuda:0", device))
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but got {argument} is on {device}, different from "
        f"other tensors on cuda:0 (when checking argument in method wrapper_CUDA_{name})"
    )


def check_arguments(ledger: Ledger, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An operator whose kernel reads every tensor on the card."""
    for tensor in args:
        if isinstance(tensor, Tensor) and _device(ledger, tensor) != "cuda:0" and tensor.dim():
            refuse(ledger, func, args, kwargs)


def check_rnn(ledger: Ledger, hidden: Iterable[Tensor], params: Iterable[Tensor]) -> None:
    """States and weights of a network on the device (ATen/native/RNN.h)."""
    for word, tensors in (("hidden", hidden), ("parameter", params)):
        for tensor in tensors:
            device = _device(ledger, tensor)
            if device != "cuda:0":
                raise RuntimeError(
                    f"Input and {word} tensors are not at the same device, found input tensor at cuda:0 and "
                    f"{word} tensor at {device}"
                )


def check_convolution(ledger: Ledger, input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Input, weight and bias of a convolution live on one device (ATen/native/Convolution.cpp)."""
    kinds = [_type(ledger, tensor) for tensor in (input, weight, bias) if tensor is not None]
    for word, kind in zip(("weight", "bias"), kinds[1:], strict=False):
        if kind != kinds[0]:
            raise RuntimeError(f"Input type ({kinds[0]}) and {word} type ({kind}) should be the same")


def is_mix(error: BaseException | None) -> bool:
    """Whether an error is one of these: tensors of the host and of the device met."""
    phrases = ("on the same device", "at the same device", "type (torch.cuda.")
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)


def _device(ledger: Ledger, tensor: Tensor) -> str:
    entry = ledger.of(tensor) if tensor.is_meta else None
    return "cpu" if entry is None else "cuda:0" if entry.device is CUDA else entry.device


def _type(ledger: Ledger, tensor: Tensor) -> str:
    kind = tensor.type().replace("torch.meta.", "torch.")
    return kind.replace("torch.", "torch.cuda.") if _device(ledger, tensor) != "cpu" else kind


def _tensors(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    names = [argument.name for argument in func._schema.arguments]
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Tensor):
                yield name, item
