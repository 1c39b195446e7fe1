"""What CUDA makes of mixed and odd dtypes: its error where it refuses, the result where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import memlens  # noqa: E402
from memlens.simulation.rules.dtypes.judges import CHECKS, checks_of  # noqa: E402

pytestmark = pytest.mark.torch

HALF, BRAIN, FLOAT, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
LONG, INT, SHORT, BYTE, BOOL = torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool


def _t(*shape: int, of: torch.dtype = FLOAT) -> Any:
    return torch.ones(shape, dtype=of, device="cuda")


def _half(*shape: int) -> Any:
    return _t(*shape, of=HALF)


def _long(*shape: int) -> Any:
    return _t(*shape, of=LONG)


def _put(self: Any, index: Any, value: Any) -> Any:
    self[index] = value
    return self


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # products
    "mm": (
        lambda: _half(2, 2) @ _t(2, 2),
        "expected mat1 and mat2 to have the same dtype, but got: c10::Half != float",
    ),
    "mm of float8": (
        lambda: torch.mm(*[_t(2, 2).to(torch.float8_e4m3fn)] * 2),
        "\"addmm_cuda\" not implemented for 'Float8_e4m3fn'",
    ),
    "mm of integers": (lambda: _long(2, 2) @ _long(2, 2), "\"addmm_cuda\" not implemented for 'Long'"),
    "addmm": (
        lambda: torch.addmm(_half(2), _t(2, 2), _t(2, 2)),
        "self and mat2 must have the same dtype, but got Half and Float",
    ),
    "addmm in place": (
        lambda: _t(2, 2).addmm_(_half(2, 2), _t(2, 2)),
        "mat1 and mat2 must have the same dtype, but got Half and Float",
    ),
    "a layer of float32 on float16": (
        lambda: nn.Linear(2, 2, device="cuda")(_half(2, 2)),
        "mat1 and mat2 must have the same dtype, but got Half and Float",
    ),
    "a layer on a batch of rows": (
        lambda: nn.Linear(2, 2, device="cuda")(_t(1, 2, 2, of=BRAIN)),
        "mat1 and mat2 must have the same dtype, but got BFloat16 and Float",
    ),
    "bmm": (
        lambda: torch.bmm(_half(1, 2, 2), _t(1, 2, 2)),
        "expected scalar type Half but found Float",
    ),
    "bmm of integers": (
        lambda: torch.bmm(_long(1, 2, 2), _long(1, 2, 2)),
        "\"baddbmm_cuda\" not implemented for 'Long'",
    ),
    "baddbmm": (
        lambda: torch.baddbmm(_t(1, 2, 2), _half(1, 2, 2), _half(1, 2, 2)),
        "Input dtypes must be the same, got: input float, batch1: c10::Half, batch2: c10::Half",
    ),
    "mv": (
        lambda: torch.mv(_half(2, 2), _t(2)),
        "addmv input tensors must have the same dtype, but got Float, Half, and Float",
    ),
    "dot": (
        lambda: torch.dot(_half(2), _t(2)),
        "dot : expected both vectors to have same dtype, but found Half and Float",
    ),
    "attention": (
        lambda: F.scaled_dot_product_attention(_half(1, 1, 2, 8), _t(1, 1, 2, 8), _t(1, 1, 2, 8)),
        "Expected query, key, and value to have the same dtype",
    ),
    "convolution": (
        lambda: F.conv2d(_half(1, 1, 2, 2), _t(1, 1, 1, 1)),
        "Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the same",
    ),
    "convolution's bias": (
        lambda: F.conv_transpose1d(_t(1, 1, 2), _t(1, 1, 1), _half(1)),
        "Input type (torch.cuda.FloatTensor) and bias type (torch.cuda.HalfTensor) should be the same",
    ),
    "convolution of integers": (
        lambda: F.conv2d(_long(1, 1, 2, 2), _long(1, 1, 1, 1)),
        "getCudnnDataTypeFromScalarType() not supported for Long",
    ),
    "distances": (
        lambda: torch.cdist(_half(3, 2), _half(3, 2)),
        "\"cdist_cuda\" not implemented for 'Half'",
    ),
    "cross": (
        lambda: torch.linalg.cross(_half(3), _t(3)),
        "Found dtype Float but expected Half",
    ),
    # normalization
    "layer norm": (
        lambda: nn.LayerNorm(2, device="cuda")(_half(2, 2)),
        "expected scalar type Half but found Float",
    ),
    "group norm": (
        lambda: nn.GroupNorm(1, 2, device="cuda")(_half(1, 2, 2)),
        "expected scalar type Half but found Float",
    ),
    "batch norm of half parameters": (
        lambda: nn.BatchNorm2d(2, device="cuda").half()(_t(1, 2, 2, 2)),
        "expected scalar type Float but found Half",
    ),
    "batch norm's bias": (
        lambda: F.batch_norm(_half(2, 2), None, None, _t(2), _half(2), training=True),
        "expected scalar type Float but found Half",
    ),
    # losses
    "32-bit classes": (
        lambda: F.cross_entropy(_t(2, 3), _t(2, of=INT)),
        "expected target dtype to be Long or Byte, but got Int",
    ),
    "32-bit classes of pixels": (
        lambda: F.cross_entropy(_t(1, 3, 2, 2), _t(1, 2, 2, of=INT)),
        "expected scalar type Long but found Int",
    ),
    "classes as floats": (
        lambda: F.nll_loss(_t(2, 3), _t(2)),
        "expected target dtype to be Long or Byte, but got Float",
    ),
    "weights of classes": (
        lambda: F.cross_entropy(_half(2, 3), _long(2), weight=_t(3)),
        "expected scalar type Half but found Float",
    ),
    "binary cross entropy": (
        lambda: F.binary_cross_entropy(_t(2), _t(2, of=DOUBLE)),
        "Found dtype Double but expected Float",
    ),
    "multi margin": (
        lambda: F.multi_margin_loss(_t(2, 3), _t(2, of=INT)),
        "expected scalar type Long but found Int",
    ),
    "CTC": (
        lambda: F.ctc_loss(_half(4, 1, 3), _long(1, 2), torch.tensor([4]), torch.tensor([2])),
        "\"ctc_loss_cuda\" not implemented for 'Half'",
    ),
    # indices
    "positions as floats": (
        lambda: nn.Embedding(3, 2, device="cuda")(_t(2)),
        "Expected tensor for argument #1 'indices'",
    ),
    "gather": (lambda: _t(3).gather(0, _t(2)), "gather(): Expected dtype int32/int64 for index"),
    "scatter": (
        lambda: _t(3).scatter(0, _long(1), _half(1)),
        "scatter(): Expected self.dtype to be equal to src.dtype",
    ),
    "index_select": (
        lambda: _t(3).index_select(0, _t(1, of=SHORT)),
        "index_select(): Expected dtype int32 or int64 for index",
    ),
    "index_add": (
        lambda: _t(3).index_add_(0, _long(1), _half(1)),
        "index_add_(): self (Float) and source (Half) must have the same scalar type",
    ),
    "index_add by floats": (
        lambda: _t(3).index_add(0, _t(1), _t(1)),
        "index_add_(): Expected dtype int32/int64 for index but got: Float",
    ),
    "index_copy": (
        lambda: _t(3).index_copy(0, _t(1, of=INT), _t(1)),
        "index_copy_(): Expected a long tensor for index, but got Int",
    ),
    "index_fill": (
        lambda: _t(3).index_fill(0, _t(1, of=INT), 1.0),
        "index_fill_(): Expected dtype int64 for index.",
    ),
    "index_reduce": (
        lambda: _t(3).index_reduce(0, _long(1), _half(1), "mean"),
        "index_reduce_(): self (Float) and source (Half) must have the same scalar type",
    ),
    "put": (lambda: _t(3).put(_t(1, of=INT), _t(1)), "put_(): Expected a long tensor for index, but got Int"),
    "x[i] = y": (
        lambda: _put(_half(3), _long(1), _t(1)),
        "Index put requires the source and destination dtypes match, "
        "got Half for the destination and Float for the source.",
    ),
    "x[mask] = a number on the card": (
        lambda: _put(_half(3), _t(3) > 0, _t()),
        "Index put requires the source and destination dtypes match",
    ),
    "x[floats] = y": (
        lambda: _t(3).index_put((_t(1),), _t(1)),
        "tensors used as indices must be long, int, byte or bool tensors",
    ),
    "masked_select": (
        lambda: _t(3).masked_select(_t(3, of=BYTE)),
        "masked_select: expected BoolTensor for mask",
    ),
    "masked_scatter": (
        lambda: _t(3).masked_scatter(_t(3, of=BYTE), _t(3)),
        "masked_scatter_ only supports boolean masks, but got mask with dtype Byte",
    ),
    "counting floats": (lambda: torch.bincount(_t(3)), "\"bincount_cuda\" not implemented for 'Float'"),
    "repeats as floats": (
        lambda: torch.repeat_interleave(_t(2), _t(2)),
        "\"repeat_interleave_cuda\" not implemented for 'Float'",
    ),
    # elementwise, pools, linear algebra
    "lerp": (lambda: torch.lerp(_t(2), _half(2), 0.5), "expected dtype"),
    "softmax": (lambda: _long(2).softmax(0), "\"host_softmax\" not implemented for 'Long'"),
    "gelu": (lambda: F.gelu(_long(2)), "\"GeluCUDAKernelImpl\" not implemented for 'Long'"),
    "bits of floats": (lambda: _t(2) & _t(2), "\"bitwise_and_cuda\" not implemented for 'Float'"),
    "bits of a float and a mask": (
        lambda: (_t(2) > 0) & _t(2),
        "\"bitwise_and_cuda\" not implemented for 'Float'",
    ),
    "std": (lambda: _long(2).std(), "std and var only support floating point and complex dtypes"),
    "complex": (
        lambda: torch.complex(_t(2), _t(2, of=DOUBLE)),
        "Expected object of scalar type Float but got scalar type Double for second argument",
    ),
    "uniform": (lambda: _long(2).uniform_(), "\"check_uniform_bounds\" not implemented for 'Long'"),
    "max pool": (
        lambda: F.max_pool2d(_long(1, 1, 2, 2), 2),
        "\"max_pool2d_with_indices_out_cuda_frame\" not implemented for 'Long'",
    ),
    "bilinear resizing of bytes": (
        lambda: F.interpolate(_t(1, 1, 2, 2, of=BYTE), scale_factor=2, mode="bilinear"),
        "\"upsample_bilinear2d_out_frame\" not implemented for 'Byte'",
    ),
    "nearest resizing of integers": (
        lambda: F.interpolate(_long(1, 1, 2, 2), scale_factor=2),
        "\"upsample_nearest2d_out_frame\" not implemented for 'Long'",
    ),
    "grid sampling": (
        lambda: F.grid_sample(_half(1, 1, 2, 2), _t(1, 2, 2, 2), align_corners=False),
        "expected scalar type Half but found Float",
    ),
    "antialiased resizing of bytes": (
        lambda: F.interpolate(_t(1, 1, 4, 4, of=BYTE), scale_factor=0.5, mode="bilinear", antialias=True),
        "\"upsample_gen2d_aa_out_frame\" not implemented for 'Byte'",
    ),
    "mean squared error of classes": (
        lambda: F.mse_loss(_long(2), _long(2)),
        "\"mse_cuda\" not implemented for 'Long'",
    ),
    "the largest of a mask": (lambda: (_t(2) > 0).argmax(), "argmax(): does not support bool input"),
    "the top of a mask": (lambda: (_t(2) > 0).topk(1), "\"topk_out_cuda\" not implemented for 'Bool'"),
    "a mask to the power of a mask": (
        lambda: (_t(2) > 0) ** (_t(2) > 0),
        "\"pow\" not implemented for 'Bool'",
    ),
    "relu of a mask": (lambda: F.relu(_t(2) > 0), "Boolean inputs not supported for relu"),
    "svd": (lambda: torch.linalg.svd(_half(2, 2)), "\"svd_cuda_gesvdj\" not implemented for 'Half'"),
    "cholesky": (lambda: torch.linalg.cholesky(_half(2, 2)), "\"cholesky_cuda\" not implemented for 'Half'"),
    "states of an RNN": (
        lambda: nn.GRU(2, 2, device="cuda")(_t(1, 1, 2), _half(1, 1, 2)),
        "Input and hidden tensors are not the same dtype, found input tensor with Float",
    ),
    "state of a cell": (
        lambda: nn.LSTMCell(2, 2, device="cuda")(_t(1, 2), (_t(1, 2), _half(1, 2))),
        "expected scalar type Float but found Half",
    ),
}

ACCEPTED: dict[str, tuple[Callable[[], Any], torch.dtype]] = {
    "sums promote": (lambda: _half(2) + _t(2), FLOAT),
    "products of elements promote": (lambda: _half(2) * _t(2, of=BRAIN), FLOAT),
    "in place into the wider": (lambda: _t(2).add_(_half(2)), FLOAT),
    "in place into the narrower": (lambda: _half(2).add_(_t(2)), HALF),
    "outer promotes": (lambda: torch.outer(_half(2), _t(2)), FLOAT),
    "cat promotes": (lambda: torch.cat([_half(2), _t(2)]), FLOAT),
    "addcmul promotes": (lambda: torch.addcmul(_t(2), _half(2), _t(2)), FLOAT),
    "where promotes": (lambda: torch.where(_t(2) > 0, _half(2), _t(2)), FLOAT),
    "where by bytes": (lambda: torch.where(_t(2, of=BYTE), _t(2), _t(2)), FLOAT),
    "masked_fill converts": (lambda: _half(2).masked_fill(_t(2) > 0, torch.tensor(1.0)), HALF),
    "layers of one dtype": (lambda: nn.Linear(2, 2, device="cuda", dtype=BRAIN)(_t(2, 2, of=BRAIN)), BRAIN),
    "mm of halves into floats": (lambda: torch.mm(_half(2, 2), _half(2, 2), out_dtype=FLOAT), FLOAT),
    "addmm of halves into floats": (
        lambda: torch.addmm(_t(2, 2), _half(2, 2), _half(2, 2), out_dtype=FLOAT),
        FLOAT,
    ),
    "baddbmm of halves into floats": (
        lambda: torch.baddbmm(_t(1, 2, 2), _half(1, 2, 2), _half(1, 2, 2), out_dtype=FLOAT),
        FLOAT,
    ),
    "mm with nothing": (lambda: torch.mm(_long(0, 2), _long(2, 2)), LONG),
    "batch norm of halves": (lambda: nn.BatchNorm2d(2, device="cuda")(_half(1, 2, 2, 2)), HALF),
    "batch norm, all half": (lambda: nn.BatchNorm1d(2, device="cuda").half()(_half(2, 2)), HALF),
    "batch norm without parameters": (
        lambda: nn.BatchNorm2d(2, affine=False, device="cuda")(_half(1, 2, 2, 2)),
        HALF,
    ),
    "RMS norm of halves": (lambda: nn.RMSNorm(2, device="cuda")(_half(2, 2)), HALF),
    "layer norm without parameters": (lambda: F.layer_norm(_half(2, 2), (2,)), HALF),
    "many distances are products": (lambda: torch.cdist(_half(30, 2), _half(30, 2)), HALF),
    "mean squared error": (lambda: F.mse_loss(_half(2), _t(2)), FLOAT),
    "logits and targets": (lambda: F.binary_cross_entropy_with_logits(_half(2), _t(2)), FLOAT),
    "probabilities as classes": (lambda: F.cross_entropy(_half(2, 3), _t(2, 3)), FLOAT),
    "byte classes": (lambda: F.cross_entropy(_t(2, 3), _t(2, of=BYTE)), FLOAT),
    "32-bit positions": (lambda: nn.Embedding(3, 2, device="cuda")(_t(2, of=INT)), FLOAT),
    "32-bit gather": (lambda: _t(3).gather(0, _t(2, of=INT)), FLOAT),
    "32-bit index_add": (lambda: _t(3).index_add(0, _t(1, of=INT), _t(1)), FLOAT),
    "32-bit index_select": (lambda: _t(3).index_select(0, _t(1, of=INT)), FLOAT),
    "32-bit x[i] = y": (lambda: _put(_t(3), _t(1, of=INT), _t(1)), FLOAT),
    "x[i] = a number": (lambda: _put(_half(3), _long(1), 1.0), HALF),
    "x[mask] = a number of the host": (lambda: _put(_half(3), _t(3) > 0, torch.tensor(1.0)), HALF),
    "x[a:b] = y converts": (lambda: _put(_half(3), slice(0, 2), _t(2)), HALF),
    "softmax that converts": (lambda: _long(2).softmax(0, dtype=FLOAT), FLOAT),
    "masks and integers": (lambda: (_t(2) > 0) & _long(2), LONG),
    "gcd with a mask": (lambda: torch.gcd(_long(2), _t(2) > 0), LONG),
    "a mask to the power of a number": (lambda: (_t(2) > 0) ** 2, LONG),
    "a mask to the power of integers": (lambda: (_t(2) > 0) ** _long(2), LONG),
    "mean squared error of floats and classes": (lambda: F.mse_loss(_t(2), _long(2)), FLOAT),
    "the remainder of a mask by a number": (lambda: (_t(2) > 0) % 2, LONG),
    "the largest of integers": (lambda: _long(2).argmax(), LONG),
    "shift by a number": (lambda: _long(2) << 1, LONG),
    "nearest resizing of bytes": (lambda: F.interpolate(_t(1, 1, 2, 2, of=BYTE), scale_factor=2), BYTE),
    "complex of floats": (lambda: torch.complex(_t(2), _t(2)), torch.complex64),
    "svd of floats": (lambda: torch.linalg.svdvals(_t(2, 2)), FLOAT),
    "std of halves": (lambda: _half(2).std(), HALF),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_card_refuses_is_refused_in_its_words(name: str) -> None:
    """A call with a dtype that CUDA's kernel, or a check before it, does not take."""
    call, words = REFUSED[name]
    with memlens.simulate("A100 40GB"), pytest.raises(RuntimeError) as error:
        call()
    assert str(error.value).startswith(words)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight", "ignore:where received a uint8")
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_card_takes_goes_on(name: str) -> None:
    """A call of mixed dtypes, or of a rare one, that CUDA computes."""
    call, dtype = ACCEPTED[name]
    with memlens.simulate("A100 40GB"):
        assert call().dtype is dtype


@pytest.mark.parametrize(
    "module",
    [
        lambda: nn.Linear(4, 4),
        lambda: nn.LayerNorm(4),
        lambda: nn.GroupNorm(2, 4),
        lambda: nn.Conv1d(4, 4, 1),
    ],
    ids=["linear", "layer norm", "group norm", "convolution"],
)
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_autocast_mends_the_mix(module: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    """Float32 parameters and an input of half the width: refused as they are, cast under autocast."""
    with memlens.simulate("A100 40GB"):
        layer, x = module().cuda(), _t(1, 4, 4, of=dtype)
        with pytest.raises(RuntimeError, match=r"same dtype|scalar type|should be the same"):
            layer(x)
        with torch.autocast("cuda", dtype=dtype):
            layer(x).sum().backward()
        assert all(p.grad.dtype is FLOAT for p in layer.parameters())


def test_the_same_call_is_free_on_the_host_and_refused_on_the_card() -> None:
    """The host takes a bfloat16 input and float32 parameters in layer norm, also after it was seen there."""
    with memlens.simulate("A100 40GB"):
        layer = nn.LayerNorm(512)
        x = torch.ones(4096, 512, dtype=BRAIN)
        assert layer(x).dtype is BRAIN
        layer.cuda()
        with pytest.raises(RuntimeError, match="expected scalar type BFloat16 but found Float"):
            layer(x.cuda())


def test_what_is_refused_leaves_nothing_behind() -> None:
    """A caught error has allocated nothing, and the program can go on with the right dtype."""
    with memlens.simulate("A100 40GB"):
        x, y = _half(1024, 1024), _t(1024, 1024)
        before = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        with pytest.raises(RuntimeError):
            torch.mm(x, y)
        assert (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()) == before
        assert torch.mm(x.float(), y).shape == (1024, 1024)


def test_every_row_is_for_arguments_that_an_operator_has() -> None:
    """A misspelt argument would make a check that is never asked."""
    for name, rows in CHECKS.items():
        packet = getattr(torch.ops.aten, name)
        overloads = [getattr(packet, overload) for overload in packet.overloads()]
        names = [{argument.name for argument in overload._schema.arguments} for overload in overloads]
        for arguments, _ in rows:
            wanted = {argument for argument in arguments if not argument.startswith("-")}
            assert any(wanted <= have for have in names), f"{name} has no {arguments}"
        assert any(checks_of(overload) for overload in overloads), name


def test_resizing_to_the_nearest_is_one_kernel() -> None:
    """The card allocates the result, and no indices: 2x2 float32 become 4x4."""
    assert asked(lambda x: F.interpolate(x, scale_factor=2), (1, 1, 2, 2)) == [64]
