"""What is known of operators that needs no function: tables of names. One that torch lacks is refused."""

from __future__ import annotations

import torch

from memlens.simulation.core.torch_operators import operator_names

_aten = torch.ops.aten

# these ask cuBLAS, whose handle gets its workspace on first use (ATen/cuda/CublasHandlePool.cpp)
BLAS = operator_names("""
    mm addmm bmm baddbmm addbmm addmv mv dot vdot _addmm_activation _scaled_mm _int_mm
    linalg_lu_factor_ex linalg_solve_triangular _linalg_solve_ex linalg_inv_ex
""")

# schemas that promise a fresh output and return an alias of their input
ALIASES = operator_names("_unsafe_view _reshape_alias _to_dense _conj _neg_view")

RESIZES = operator_names("set_ resize_ resize_as_ _resize_output_")

# write one number into all of their first argument
FILLS = operator_names("fill_ zero_")

# results on small known data are computed, so that code which asks gets the truth
FOLLOWED = operator_names("""
    eq ne lt le gt ge logical_not logical_and logical_or logical_xor bitwise_not bitwise_and
    bitwise_or any all sum max min amax amin argmax argmin cumsum prod add sub rsub mul div
    floor_divide remainder neg _is_all_true abs clamp clamp_min clamp_max maximum minimum clone cat
    stack where masked_fill index_select index gather flip roll repeat tril triu sort arange full
    scalar_tensor isin nonzero _unique2 unique_consecutive masked_select bincount ones zeros
    ones_like zeros_like full_like new_ones new_zeros new_full ceil floor mean count_nonzero
""")

# take index tensors of the host beside tensors of the device
INDEXING = operator_names("index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put")

# read other tensors of the host on the host; so do families of operators, by the beginning of their names
_READ_ON_HOST = operator_names(
    "_pack_padded_sequence _pack_padded_sequence_backward set_ copy _cudnn_rnn record_stream"
)
_FAMILIES_THAT_MIX = ("_foreach_", "_fused_", "_amp_", "nested", "_nested")

# the meta kernel refuses a host tensor without dimensions
NO_NUMBERS = operator_names("masked_fill masked_fill_")

# autograd's engine writes the sum of two gradients into the first (torch/csrc/autograd/input_buffer.cpp)
ACCUMULATES = _aten.add.Tensor
# and derivative formulas fill fresh zeros (torch/csrc/autograd/FunctionsManual.cpp)
FILL_ZEROS_IN_BACKWARD = frozenset({
    _aten.scatter.src,
    _aten.scatter.value,
    _aten.scatter_add.default,
    _aten.index_put.default,
    _aten.index_add.default,
    _aten.masked_fill.Scalar,
    _aten.masked_fill.Tensor,
    _aten.masked_scatter.default,
    _aten.logical_and.default,
    _aten.logical_or.default,
})  # fmt: skip
# of these only in the formulas whose nodes are called so: clamp_backward combines the masks that it made
IN_NODES = {_aten.logical_and.default: "ClampBackward", _aten.logical_or.default: "ClampBackward"}


def may_mix(name: str) -> bool:
    """Whether this operator takes host tensors with dimensions beside tensors of the device."""
    return name in INDEXING or name in _READ_ON_HOST or name.startswith(_FAMILIES_THAT_MIX)
