"""Differences that a real card has, too: rows whose samples differ from the CPU's as CUDA's do."""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """Rows whose name `name` finds may differ in what `what` finds: CUDA does, for this reason."""

    name: str
    what: str
    why: str


_META = "torch's meta kernel for CUDA says so (torch/_meta_registrations.py)"
KNOWN = (
    Known(r"svd|pca_lowrank|pinv|matrix_rank", r"stride", f"cuSOLVER gives V by rows; {_META}"),
    Known(r"linalg\.eig ", r"stride", f"CUDA gives the vectors by rows, LAPACK by columns; {_META}"),
    Known(r"fft|stft", r"stride", f"cuFFT's plans keep other axes innermost than the CPU's; {_META}"),
    Known(
        r"max_unpool2d",
        r"stride",
        "CUDA's kernel makes a contiguous output (cuda/MaxUnpooling.cu), the CPU's one in the input's format",
    ),
    Known(
        r"scaled_dot_product_attention",
        r"stride",
        "CUDA's fused kernels lay the output out by position, then by head (cuda/attention.cu)",
    ),
    Known(
        r"scaled_dot_product_attention.*backward twice",
        r"derivative for .*attention_backward is not implemented",
        "CUDA's fused attention has no second backward",
    ),
    Known(
        r"^optim_db",
        r"state of \d (step|mu_product): device cpu",
        "what counts steps is a tensor of the host unless `capturable` or `fused` is given (torch/optim)",
    ),
    Known(r"nn\.(RNN|GRU|LSTM) ", r"storage_bytes", "cuDNN has all weights in one buffer (cudnn/RNN.cpp)"),
    Known(
        r"nn\.(RNN|GRU|LSTM) backward twice",
        r"Double backwards is not supported",
        "cuDNN has no second backward",
    ),
    Known(
        r"nn\.(Lazy)?Conv3d backward twice",
        r"storage_bytes",
        "the CPU keeps a larger buffer of a transposed convolution (NaiveConvolutionTranspose3d.cpp)",
    ),
    Known(r"unique_consecutive", r"storage_bytes", "the CPU keeps the buffer that it wrote to, CUDA fits it"),
    Known(r"nonzero_static", r"stride", f"CUDA's result is laid out by dimension; {_META}"),
    Known(
        r"^optim_db .*capturable",
        r"^peak",
        "a capturable step computes its factors as tensors; the CPU runs only the other form",
    ),
    Known(r"sparse\.mm reduce", r"_sparse_mm_reduce_impl", "CUDA has no such kernel (native_functions.yaml)"),
    Known(r"lstsq", r"driver. other than .gels", "CUDA has no other driver (BatchLinearAlgebra.cpp)"),
)  # fmt: skip


def why_known(name: str, what: str) -> str:
    """Why the row `name` differs in `what` on a real card as well; empty if it should not."""
    for known in KNOWN:
        if re.search(known.name, name + " ") and re.search(known.what, what):
            return known.why
    return ""
