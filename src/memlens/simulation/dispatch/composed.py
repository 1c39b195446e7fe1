"""Operators that are one kernel to the dispatcher and several operators in C++, on every device alike.

torch's meta kernels for them (Python decompositions or shape functions) give the outputs, not the temporaries
in between, and give a number its own storage where C++ returns the first element of a full one. Here the C++
itself runs (its CompositeExplicitAutograd kernel), with every operator in it counted. Which ones have such
temporaries was found by `python -m benchmarks.coverage`, which compares the peaks with a profile of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from memlens.simulation.core.torch_operators import operator_names

_KEY = torch._C.DispatchKey.CompositeExplicitAutograd
_KEY_NON_FUNCTIONAL = torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional
# native_functions.yaml: `CompositeExplicitAutograd`; files of aten/src/ATen/native
_NAMES = operator_names(
    """
    binary_cross_entropy_with_logits soft_margin_loss soft_margin_loss_backward huber_loss_backward
    smooth_l1_loss_backward count_nonzero mvlgamma isinf dist ldexp _euclidean_dist _trilinear
    _unsafe_masked_index _unsafe_masked_index_put_accumulate index_fill masked_scatter
    masked_scatter_backward rot90 block_diag affine_grid_generator celu cholesky_solve norm
    rrelu_with_noise_backward xlogy special_xlog1py
    """
)  # Loss.cpp, Linear.cpp, TensorAdvancedIndexing.cpp, UnaryOps.cpp, BinaryOps.cpp, Distance.cpp


def composition(func: OpOverload) -> Callable[..., Any] | None:
    """The C++ kernel of `func` that calls other operators; None where it is not one of these."""
    name = func._schema.name.removeprefix("aten::")
    if name not in _NAMES:
        return None
    for key in (_KEY, _KEY_NON_FUNCTIONAL):
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key):
            return lambda *args, **kwargs: func._op_dk(key, *args, **kwargs)
    return None
