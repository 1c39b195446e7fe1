"""Multiply-accumulates of an operator: half of what torch's own flop counter gives, and RNNs in one piece."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.utils.flop_counter import flop_registry

Count = Callable[..., int]


def _cudnn_rnn(input: Any, weight: Any, *rest: Any, out_val: Any = None, **kwargs: Any) -> int:
    """Every weight matrix meets every position of every sample once: the flop counter's sum over `mm`s.

    Of torch._cudnn_rnn, which the flop counter does not know: on the CPU it sees the products inside.
    """
    positions = input.numel() // input.shape[-1]
    return 2 * positions * sum(w.numel() for w in weight if w.dim() == 2)


_OWN: dict[str, Count] = {"_cudnn_rnn": _cudnn_rnn}


@functools.cache
def formula(func: Any) -> Count | None:
    """How to count the floating point operations of `func`, None where it multiplies nothing."""
    packet = getattr(func, "_overloadpacket", None)
    own = _OWN.get(func._schema.name.removeprefix("aten::")) if packet is not None else None
    return own or flop_registry.get(packet)


def count_macs(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Multiply-accumulates of one call.

    >>> import torch
    >>> a, b = torch.empty(2, 3, device="meta"), torch.empty(3, 5, device="meta")
    >>> count_macs(torch.ops.aten.mm.default, (a, b), {}, a @ b)
    30
    """
    count = formula(func)
    return count(*args, **kwargs, out_val=out) // 2 if count is not None else 0
