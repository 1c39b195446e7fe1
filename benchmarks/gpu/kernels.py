"""Scratch memory of convolutions and the kernels of attention, as the card in this machine chooses them.

Each figure is a difference of the allocator's counters around one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from memlens.measurement.lines.cuda_peaks import KEPT

# convolutions of well-known networks: channels in and out, kernel, stride, image, batch
CONVOLUTIONS: tuple[tuple[int, int, int, int, int, int], ...] = tuple(
    (*layer, batch)
    for layer in (
        (3, 64, 7, 2, 224), (3, 64, 3, 1, 224), (64, 64, 3, 1, 56), (64, 128, 3, 2, 56), (128, 128, 3, 1, 28),
        (256, 256, 3, 1, 14), (512, 512, 3, 1, 7), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56),
        (512, 2048, 1, 1, 7),
    )
    for batch in (8, 32)
)  # fmt: skip
# attention: batch, heads, queries, keys, head size, causal
ATTENTIONS: tuple[tuple[int, int, int, int, int, bool], ...] = (
    (4, 8, 512, 512, 64, False), (4, 8, 512, 512, 64, True), (4, 8, 2048, 2048, 128, True),
    (4, 8, 512, 512, 80, False), (4, 8, 512, 512, 256, False), (4, 8, 1, 512, 64, False),
    (2, 4, 130, 70, 72, False),
)  # fmt: skip
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# torch.nn.attention.SDPBackend, by number
BACKENDS = {-1: "error", 0: "math", 1: "flash_attention", 2: "efficient_attention", 3: "cudnn_attention"}


def convolutions() -> Iterator[dict[str, Any]]:
    """The scratch memory of convolutions, forward and with backward: bytes above what tensors take."""
    for channels, filters, kernel, stride, image, batch in CONVOLUTIONS:
        for dtype in DTYPES:
            for layout in (torch.contiguous_format, torch.channels_last):
                layer = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
                layer = layer.to("cuda", dtype).to(memory_format=layout)
                shape = (batch, channels, image, image)
                x = torch.randn(shape, device="cuda", dtype=dtype).to(memory_format=layout).requires_grad_()
                yield {
                    "channels": channels, "filters": filters, "kernel": kernel, "stride": stride,
                    "image": image, "batch": batch, "dtype": str(dtype)[6:],
                    "channels_last": layout is torch.channels_last, **_workspaces(layer, x),
                }  # fmt: skip


def _workspaces(layer: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    try:
        with peak_above() as forward:
            out = layer(x)
        gradient = torch.ones_like(out)
        with peak_above() as backward:
            out.backward(gradient)
    except RuntimeError as error:  # a dtype that this card's cuDNN does not know
        return {"skipped": str(error).splitlines()[0]}
    return {"forward_bytes": forward[0], "backward_bytes": backward[0]}


@contextmanager
def peak_above() -> Iterator[list[int]]:
    """A list of one: how far memory rose, for a moment, above what it held before and after."""
    index = int(torch.cuda.current_device())
    found: list[int] = []
    KEPT.open()
    KEPT.reset(index, KEPT.stats(index))
    before = int(torch.cuda.memory_allocated(index))
    try:
        yield found
    finally:
        torch.cuda.synchronize()
        stats = KEPT.stats(index)
        after = int(stats.get("allocated_bytes.all.current", 0))
        found.append(int(stats.get("allocated_bytes.all.peak", 0)) - max(before, after))
        KEPT.reset(index, stats)
        KEPT.close()


def attentions() -> Iterator[dict[str, Any]]:
    """Which kernel `scaled_dot_product_attention` takes, and what it keeps beside its output."""
    for batch, heads, queries, keys, size, causal in ATTENTIONS:
        for dtype in DTYPES:
            q = torch.randn(batch, heads, queries, size, device="cuda", dtype=dtype, requires_grad=True)
            k, v = (torch.randn(batch, heads, keys, size, device="cuda", dtype=dtype) for _ in "kv")
            asked = {
                "batch": batch, "heads": heads, "queries": queries, "keys": keys, "head_size": size,
                "causal": causal, "dtype": str(dtype)[6:],
            }  # fmt: skip
            try:
                choice = int(torch._fused_sdp_choice(q, k, v, is_causal=causal))
                before = int(torch.cuda.memory_allocated())
                out = scaled_dot_product_attention(q, k, v, is_causal=causal)
                kept = int(torch.cuda.memory_allocated()) - before - out.untyped_storage().nbytes()
            except RuntimeError as error:
                yield {**asked, "skipped": str(error).splitlines()[0]}
                continue
            yield {**asked, "kernel": BACKENDS.get(choice, str(choice)), "kept_bytes": kept}
            del q, k, v, out  # before the next begins to count
