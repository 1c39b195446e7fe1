"""Arguments whose dtypes must go together, operators and what must hold of them, in PyTorch's words.

A meta kernel promises an output for a float16 matrix times a float32 one; on the card the program ends there.
Checks that CPU and CUDA share (ATen/native/*.cpp: structured `meta` functions, TORCH_CHECKs of operators with
one implementation) have the words that the CPU says. Those of CUDA alone are in ATen/native/cuda: Blas.cpp,
layer_norm_kernel.cu, group_norm_kernel.cu, Normalization.cu, Loss.cu, NLLLoss2d.cu, MultiMarginLoss.cu,
CrossKernel.cu, GridSampler.cu, EmbeddingBag.cu, RNN.cu; and in cudnn/RNN.cpp and cudnn/Types.cpp.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from memlens.simulation.rules.common import HALVES
from memlens.simulation.rules.dtypes.judges import (
    BOOL,
    BYTE,
    COMPLEX,
    FLOATS,
    INDICES,
    LONG,
    NUMBERS,
    WIDE_FLOATS,
    check,
    implemented,
    only,
    read_as,
    same,
)

# products ------------------------------------------------------------------------------------------------

_SELF = "self and mat2 must have the same dtype, but got {0} and {1}"
_MATRICES = "mat1 and mat2 must have the same dtype, but got {0} and {1}"
_VECTORS = "addmv input tensors must have the same dtype, but got {0}, {1}, and {2}"

check("mm", "self mat2")(same("expected mat1 and mat2 to have the same dtype, but got: {0.cpp} != {1.cpp}"))
check("addmm addmm_ _addmm_activation", "self mat2 -out_dtype")(same(_SELF))
check("addmm addmm_ _addmm_activation", "mat1 mat2")(same(_MATRICES))
check("addbmm addbmm_", "self batch2")(same(_SELF))
check("addbmm addbmm_", "batch1 batch2")(same(_MATRICES))
check("baddbmm baddbmm_", "self batch1 batch2 -out_dtype")(
    same("Input dtypes must be the same, got: input {0.cpp}, batch1: {1.cpp}, batch2: {2.cpp}")
)
check("baddbmm baddbmm_", "batch1 batch2")(read_as)
check("bmm", "self mat2")(read_as)
check("mv", "vec self vec")(same(_VECTORS))
check("addmv addmv_", "self mat vec")(same(_VECTORS))
check("dot", "self tensor")(same("dot : expected both vectors to have same dtype, but found {0} and {1}"))
check("vdot", "self other")(same("dot : expected both vectors to have same dtype, but found {0} and {1}"))
check("linalg_cross", "self other")(same("Found dtype {odd} but expected {0}"))
check("_euclidean_dist", "x1 x2")(read_as)
check("convolution", "input")(
    only(FLOATS | COMPLEX, "getCudnnDataTypeFromScalarType() not supported for {odd}")
)


@check("_cdist_forward", "x1 x2 p compute_mode")
def cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> None:
    """The kernel knows two dtypes; with more than 25 points distances are products (Distance.cpp)."""
    read_as(x1, x2)
    is_large = max(x1.shape[-2], x2.shape[-2]) > 25
    if p != 2 or not (compute_mode == 1 or (not compute_mode and is_large)):
        implemented(WIDE_FLOATS, "cdist_cuda")(x1, x2)


# normalization: CUDA's batch norm takes float32 parameters for half-precision inputs, the others do not -----

check("native_layer_norm", "input weight bias")(read_as)
check("native_group_norm", "input weight bias")(read_as)


@check("native_batch_norm _native_batch_norm_legit", "input weight bias")
def batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Parameters of the input's dtype, or the dtype it is summed in; bias as weight (Normalization.cu)."""
    if weight is None or (input.dim() == 2 and not input.is_contiguous()):
        return  # then each value is converted as it is read
    if not (input.dtype in HALVES and weight.dtype is torch.float32):
        read_as(input, weight)
    read_as(weight, bias)


# losses --------------------------------------------------------------------------------------------------

_CLASSES = "expected target dtype to be Long or Byte, but got {odd}"

check("nll_loss_forward", "target")(only(LONG | BYTE, _CLASSES))
check("nll_loss2d_forward", "target")(only(LONG | BYTE, "expected scalar type Long but found {odd}"))
check("nll_loss_forward nll_loss2d_forward multi_margin_loss", "self weight")(read_as)
check("multi_margin_loss multilabel_margin_loss_forward", "target")(
    only(LONG, "expected scalar type Long but found {odd}")
)
check("binary_cross_entropy", "self target")(same("Found dtype {odd} but expected {0}"))

# indices and masks ---------------------------------------------------------------------------------------

check("index_select", "index")(only(INDICES, "index_select(): Expected dtype int32 or int64 for index"))
check("index_fill index_fill_", "index")(only(LONG, "index_fill_(): Expected dtype int64 for index."))
check("index_copy index_copy_", "index")(
    only(LONG, "index_copy_(): Expected a long tensor for index, but got {odd}")
)
check("index_copy index_copy_", "self source")(
    same(
        "index_copy_(): self and source expected to have the same dtype, but got (self) {0} and (source) {1}"
    )
)
check("put put_", "index")(only(LONG, "put_(): Expected a long tensor for index, but got {odd}"))
check("put put_", "self source")(
    same(
        "put_(): self and source expected to have the same dtype, "
        "but got self.dtype = {0} and source.dtype = {1}"
    )
)
for _name in ("index_add", "index_reduce"):
    check(f"{_name} {_name}_", "index")(
        only(INDICES, f"{_name}_(): Expected dtype int32/int64 for index but got: {{odd}}")
    )
    check(f"{_name} {_name}_", "self source")(
        same(f"{_name}_(): self ({{0}}) and source ({{1}}) must have the same scalar type")
    )
check("masked_select", "mask")(only(BOOL, "masked_select: expected BoolTensor for mask"))
check("masked_scatter masked_scatter_", "mask")(
    only(BOOL, "masked_scatter_ only supports boolean masks, but got mask with dtype {odd}")
)
check("searchsorted", "sorter")(
    only(LONG, "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {odd}")
)


@check("index_put index_put_ _index_put_impl_ _unsafe_index_put", "self indices values accumulate")
def index_put(self: Tensor, indices: Any, values: Tensor, accumulate: bool | None) -> None:
    """Values are not converted, but for a number of the host behind a mask (TensorAdvancedIndexing.cpp)."""
    given = [index for index in indices if index is not None]
    only(INDICES | BOOL | BYTE, "tensors used as indices must be long, int, byte or bool tensors")(*given)
    is_number = not values.is_meta and values.numel() == 1
    is_masked_fill = (
        is_number and not accumulate and [i.dtype for i in given] in ([torch.bool], [torch.uint8])
    )
    if not is_masked_fill:
        _values_as_self(self, values)


_values_as_self = same(
    "Index put requires the source and destination dtypes match, "
    "got {0} for the destination and {1} for the source."
)

# others with two tensors ---------------------------------------------------------------------------------

check("complex", "real imag")(
    same("Expected object of scalar type {0} but got scalar type {1} for second argument")
)
check("polar", "abs angle")(
    same("Expected object of scalar type {0} but got scalar type {1} for second argument")
)
check("heaviside heaviside_", "self values")(
    same("heaviside is not yet implemented for tensors with different dtypes.")
)
check("grid_sampler_2d grid_sampler_3d", "input grid")(read_as)
check("_embedding_bag _embedding_bag_forward_only", "weight per_sample_weights")(read_as)
check("_cudnn_rnn", "input hx cx")(
    same(
        "Input and hidden tensors are not the same dtype, "
        "found input tensor with {0} and hidden tensor with {odd}"
    )
)
check("_thnn_fused_lstm_cell", "input_gates hidden_gates cx input_bias hidden_bias")(read_as)
check("_thnn_fused_gru_cell", "input_gates hidden_gates hx input_bias hidden_bias")(read_as)
check("linalg_lstsq", "self b")(
    same(
        "torch.linalg.lstsq: Expected input and other to have the same dtype, "
        "but got input's dtype {0} and other's dtype {1}"
    )
)

check("relu relu_", "self")(only(NUMBERS | COMPLEX, "Boolean inputs not supported for relu"))
for _name in ("argmax", "argmin"):
    check(_name, "self")(only(NUMBERS | COMPLEX, f"{_name}(): does not support bool input"))
check("multinomial", "self")(
    only(FLOATS, "multinomial only supports floating-point dtypes for input, got: {odd}")
)
check("var std", "self")(only(FLOATS | COMPLEX, "std and var only support floating point and complex dtypes"))
for _name in ("var_mean", "std_mean"):
    check(_name, "self")(only(FLOATS | COMPLEX, f"{_name} only support floating point and complex dtypes"))
