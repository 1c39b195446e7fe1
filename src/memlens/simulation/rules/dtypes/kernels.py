"""The dtypes that CUDA's kernels are compiled for: those that torch.testing's `op_db` names for CUDA.

A line has operators and, after the colon, the kernel as its error names it.
"""

from __future__ import annotations

from collections.abc import Callable

from memlens.simulation.rules.dtypes.judges import (
    BOOL,
    BYTE,
    COMPLEX,
    FLOATS,
    INDICES,
    INTEGERS,
    NUMBERS,
    WIDE_FLOATS,
    Dtypes,
    Judge,
    check,
    implemented,
    promoted,
)


def _kernels(
    dtypes: Dtypes, arguments: str, lines: str, judge: Callable[[Dtypes, str], Judge] = implemented
) -> None:
    for line in lines.strip().splitlines():
        operators, kernel = line.split(":")
        check(operators, arguments)(judge(dtypes, kernel.strip()))


_kernels(
    FLOATS | COMPLEX,
    "self mat2",
    """
    mm: addmm_cuda
    bmm: baddbmm_cuda
""",
)
_kernels(FLOATS | COMPLEX, "mat1 mat2", "addmm addmm_ _addmm_activation: addmm_cuda")
_kernels(FLOATS | COMPLEX, "batch1 batch2", "addbmm addbmm_ baddbmm baddbmm_: baddbmm_cuda")
_kernels(FLOATS | COMPLEX, "self vec", "mv: addmv_impl_cuda")
_kernels(FLOATS | COMPLEX, "mat vec", "addmv addmv_: addmv_impl_cuda")
_kernels(FLOATS | COMPLEX, "self tensor", "dot: dot")
_kernels(FLOATS | COMPLEX, "self other", "vdot: dot")

_kernels(
    FLOATS,
    "input",
    """
    native_layer_norm: LayerNormKernelImpl
    native_group_norm: GroupNormKernelImpl
    native_batch_norm _native_batch_norm_legit: batch_norm_stats_cuda
    grid_sampler_2d: grid_sampler_2d_cuda
    grid_sampler_3d: grid_sampler_3d_cuda
""",
)
_kernels(
    FLOATS,
    "self",
    """
    _softmax _log_softmax _safe_softmax: host_softmax
    nll_loss_forward: nll_loss_forward_reduce_cuda_kernel_2d
    nll_loss2d_forward: nll_loss2d_forward_kernel
    multi_margin_loss: multi_margin_loss_cuda
    multilabel_margin_loss_forward: multilabel_margin_loss_forward_kernel
    frac frac_: frac_cuda
    gelu gelu_: GeluCUDAKernelImpl
    mish mish_: mish_cuda
    hardswish hardswish_: hardswish_cuda
    hardsigmoid hardsigmoid_: hardsigmoid_cuda
    leaky_relu leaky_relu_: leaky_relu_cuda
    softplus: softplus_cuda
    glu: glu_cuda
    log_sigmoid_forward: log_sigmoid_forward_cuda
    hardshrink: hardshrink_cuda
    softshrink: softshrink_cuda
    _adaptive_avg_pool2d: adaptive_avg_pool2d_cuda
    _adaptive_avg_pool3d: adaptive_avg_pool3d_cuda
    adaptive_max_pool2d: adaptive_max_pool2d_cuda
    adaptive_max_pool3d: adaptive_max_pool3d_cuda
    avg_pool2d: avg_pool2d_out_cuda_frame
    avg_pool3d: avg_pool3d_out_frame
    max_pool2d_with_indices: max_pool2d_with_indices_out_cuda_frame
    max_pool3d_with_indices: max_pool3d_with_indices_out_frame
    upsample_linear1d: upsample_linear1d_out_frame
    upsample_bilinear2d: upsample_bilinear2d_out_frame
    upsample_trilinear3d: upsample_trilinear3d_out_frame
    upsample_bicubic2d: upsample_bicubic2d_out_frame
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa: upsample_gen2d_aa_out_frame
    max_unpool2d: max_unpooling2d_forward_kernel
    max_unpool3d: max_unpooling3d_forward_kernel
    bernoulli: bernoulli_tensor_cuda_p_
""",
)
_kernels(
    FLOATS | BYTE,
    "self",
    """
    upsample_nearest1d _upsample_nearest_exact1d: upsample_nearest1d_out_frame
    upsample_nearest2d _upsample_nearest_exact2d: upsample_nearest2d_out_frame
    upsample_nearest3d _upsample_nearest_exact3d: upsample_nearest3d_out_frame
""",
)
_kernels(
    FLOATS | COMPLEX,
    "self",
    """
    silu silu_: silu_cuda
    uniform_: check_uniform_bounds
    logcumsumexp: logcumsumexp_cuda
    lerp lerp_: lerp_cuda
""",
)
_kernels(FLOATS | COMPLEX | BOOL, "self", "im2col: im2col_out_cuda")

_kernels(WIDE_FLOATS, "self", "_pdist_forward: pdist_cuda")
_kernels(WIDE_FLOATS, "abs angle", "polar: polar_cuda")
_kernels(WIDE_FLOATS | COMPLEX, "input tau", "linalg_householder_product: orgqr_cuda")
_kernels(WIDE_FLOATS | INTEGERS, "self", "histc: histc")
_kernels(WIDE_FLOATS, "log_probs", "_ctc_loss: ctc_loss_cuda")
_kernels(
    WIDE_FLOATS | COMPLEX,
    "self",
    """
    linalg_cholesky_ex: cholesky_cuda
    cholesky_inverse: cholesky_cuda_potrs
    linalg_eig: linalg_eig_cuda
    linalg_ldl_factor_ex: ldl_factor_cusolver
    geqrf: geqrf_cuda
    linalg_solve_triangular: triangular_solve_cublas
""",
)
check("", "self", optional="cholesky")(implemented(WIDE_FLOATS | COMPLEX, "cholesky_cuda"))  # until 2.13
_kernels(
    WIDE_FLOATS | COMPLEX,
    "A",
    """
    _linalg_eigh: linalg_eigh_cuda
    _linalg_svd: svd_cuda_gesvdj
    linalg_qr: geqrf_cuda
    linalg_lu_factor_ex linalg_lu _linalg_det: lu_factor_cusolver
""",
)

_kernels(INTEGERS, "self", "bincount: bincount_cuda")
_kernels(INDICES, "repeats", "repeat_interleave: repeat_interleave_cuda")
for _one in ("self", "other"):  # in turn, for a number may be in place of either
    _kernels(
        INTEGERS | BOOL,
        _one,
        """
        bitwise_and bitwise_and_ __and__ __iand__: bitwise_and_cuda
        bitwise_or bitwise_or_ __or__ __ior__: bitwise_or_cuda
        bitwise_xor bitwise_xor_ __xor__ __ixor__: bitwise_xor_cuda
        bitwise_left_shift bitwise_left_shift_ __lshift__ __ilshift__: lshift_cuda
        bitwise_right_shift bitwise_right_shift_ __rshift__ __irshift__: rshift_cuda
        gcd gcd_: gcd_cuda
        lcm lcm_: lcm_cuda
    """,
    )
_kernels(INTEGERS | BOOL, "self", "bitwise_not bitwise_not_: bitwise_not_cuda")
_kernels(
    NUMBERS,
    "self",
    """
    topk: topk_out_cuda
    kthvalue: kthvalue_cuda
    median nanmedian: median_out_impl
""",
)

_kernels(
    FLOATS | COMPLEX,
    "self target",
    """
    mse_loss: mse_cuda
    smooth_l1_loss: smooth_l1_cuda
    huber_loss: huber_cuda
""",
    promoted,
)
_kernels(
    FLOATS | COMPLEX,
    "self other",
    """
    logaddexp: logaddexp_cuda
    logaddexp2: logaddexp2_cuda
    hypot hypot_: hypot_cuda
    nextafter nextafter_: nextafter_cuda
""",
    promoted,
)
_kernels(NUMBERS | COMPLEX, "self exponent", "pow pow_: pow", promoted)
_kernels(
    NUMBERS,
    "self other",
    """
    remainder remainder_: remainder_cuda
    fmod fmod_: fmod_cuda
""",
    promoted,
)
