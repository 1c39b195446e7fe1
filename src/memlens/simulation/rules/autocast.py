"""CUDA autocast: which operators cast their inputs, and the cache of cast weights.

The lists are those of ATen/autocast_mode.h (torch 2.13); an operator counts only where the installed torch
has an autocast kernel for it, so older versions keep their own lists. A leaf that requires grad, is float32
and no view is cast once and kept until the outermost autocast context ends (`cached_cast` in
ATen/autocast_mode.cpp): during a forward the weights exist twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from memlens.simulation.core.torch_operators import find_operators

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_aten = torch.ops.aten

LOWER_PRECISION = find_operators("""
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm
    baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention
""")
FP32 = find_operators("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
    binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
""")
FP32_SET_OPT_DTYPE = find_operators("""
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""")
FP32_APPEND_DTYPE = {
    _aten.norm.Scalar: _aten.norm.ScalarOpt_dtype,
    _aten.norm.ScalarOpt_dim: _aten.norm.ScalarOpt_dim_dtype,
}
PROMOTE = find_operators("""
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack
""")
BANNED = find_operators("binary_cross_entropy")

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


class Cache:
    """Weights cast to the lower precision, kept until autocast's outermost context ends."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._cast: dict[int, tuple[Tensor, Tensor]] = {}  # id -> (weight, its cast); the weight keeps the id

    def clear(self) -> None:
        self._cast.clear()

    def eligible(self, value: Any) -> bool:
        return (
            isinstance(value, Tensor)
            and value.is_meta
            and value.is_floating_point()
            and value.dtype is not torch.float64
            and self.sim.is_cuda(value)
        )

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        """`value` in `dtype` where autocast would cast it; lists are cast item by item."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.cast(item, dtype) for item in value)
        if not self.eligible(value) or value.dtype is dtype:
            return value
        lower = torch.get_autocast_dtype("cuda")
        keeps = (
            dtype is lower
            and value.dtype is torch.float32
            and value.requires_grad
            and value.is_leaf
            and not value._is_view()
            and torch.is_autocast_cache_enabled()
            and not torch.is_inference_mode_enabled()  # casts there are made anew, as the CPU's profile shows
        )
        if not keeps:
            return value.to(dtype)
        pair = self._cast.get(id(value))
        if pair is None:
            pair = self._cast[id(value)] = (value, value.to(dtype))
        return pair[1]

    def widest(self, values: tuple[Any, ...]) -> torch.dtype:
        """The dtype that operators of the promote list run in: float32 if any argument is, else the lower."""
        flat = [
            item for value in values for item in (value if isinstance(value, (list, tuple)) else (value,))
        ]
        wide = any(self.eligible(item) and item.dtype is torch.float32 for item in flat)
        return torch.float32 if wide else torch.get_autocast_dtype("cuda")


Kernel = Callable[..., Any]


def kernels(cache: Cache) -> dict[OpOverload, Kernel]:
    """The autocast kernel of every operator that the installed torch casts."""
    table: dict[OpOverload, Kernel] = {}
    for operators, make in (
        (LOWER_PRECISION, _lower_precision),
        (FP32, _fp32),
        (FP32_SET_OPT_DTYPE, _fp32_set_dtype),
        (PROMOTE, _promote),
        (BANNED, _banned),
    ):
        for operator in filter(_is_cast, operators):
            table[operator] = _without_modes(make(cache, operator))
    for operator, with_dtype in FP32_APPEND_DTYPE.items():
        table[operator] = _without_modes(_fp32_append_dtype(cache, operator, with_dtype))
    return table


def _is_cast(operator: OpOverload) -> bool:
    name = operator._schema.name
    if operator._schema.overload_name:
        name += f".{operator._schema.overload_name}"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA"))


def _without_modes(kernel: Kernel) -> Kernel:
    """Run a kernel with autocast excluded, as C++ kernels do, and without the function modes."""

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST), torch._C.DisableTorchFunction():
            return kernel(*args, **kwargs)

    return run


def _lower_precision(cache: Cache, operator: OpOverload) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("cuda")
        cast = {name: cache.cast(value, dtype) for name, value in kwargs.items()}
        return operator(*[cache.cast(value, dtype) for value in args], **cast)

    return kernel


def _fp32(cache: Cache, operator: OpOverload) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        cast = {name: cache.cast(value, torch.float32) for name, value in kwargs.items()}
        return operator(*[cache.cast(value, torch.float32) for value in args], **cast)

    return kernel


def _fp32_set_dtype(cache: Cache, operator: OpOverload) -> Kernel:
    """The kernel accumulates in float32 without a cast copy, unless the caller chose a dtype."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if cache.eligible(args[0]) and kwargs.get("dtype") is None and not _dtype_given(operator, args):
            kwargs = {**kwargs, "dtype": torch.float32}
            args = _without_dtype(operator, args)
        return operator(*args, **kwargs)

    return kernel


def _dtype_index(operator: OpOverload) -> int | None:
    for number, argument in enumerate(operator._schema.arguments):
        if argument.name == "dtype" and not argument.kwarg_only:
            return number
    return None


def _dtype_given(operator: OpOverload, args: tuple[Any, ...]) -> bool:
    number = _dtype_index(operator)
    return number is not None and number < len(args) and args[number] is not None


def _without_dtype(operator: OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    number = _dtype_index(operator)
    return args if number is None else args[:number]


def _fp32_append_dtype(cache: Cache, operator: OpOverload, with_dtype: OpOverload) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if cache.eligible(args[0]):
            return with_dtype(*args, **kwargs, dtype=torch.float32)
        return operator(*args, **kwargs)

    return kernel


def _promote(cache: Cache, operator: OpOverload) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        if not any(cache.eligible(v) or isinstance(v, (list, tuple)) for v in values):
            return operator(*args, **kwargs)
        dtype = cache.widest(values)
        cast = {name: cache.cast(value, dtype) for name, value in kwargs.items()}
        return operator(*[cache.cast(value, dtype) for value in args], **cast)

    return kernel


def _banned(cache: Cache, operator: OpOverload) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if cache.eligible(args[0]):
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast; use "
                "binary_cross_entropy_with_logits or BCEWithLogitsLoss."
            )
        return operator(*args, **kwargs)

    return kernel
