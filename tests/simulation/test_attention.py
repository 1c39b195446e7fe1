"""`scaled_dot_product_attention`: the kernel a card takes, and the bytes that it costs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

import memlens  # noqa: E402
from memlens.model.events import Alloc  # noqa: E402
from memlens.units import KIB, MIB  # noqa: E402

pytestmark = pytest.mark.torch

MATH, FLASH, EFFICIENT, CUDNN = range(4)
HALF, BF16, FP32, FP64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def _qkv(dtype, head=64, length=512, heads=8, kv_heads=None, grad=True):
    """Two sequences on the device; `grad` makes them leaves that train."""
    shapes = [(2, h, length, head) for h in (heads, kv_heads or heads, kv_heads or heads)]
    return [torch.empty(shape, device="cuda", dtype=dtype, requires_grad=grad) for shape in shapes]


class Cost:
    """Bytes of one attention call above its inputs: kept after forward, peak of forward, peak of backward."""

    def __init__(self, gpu: str, qkv: dict, mask=None, **call) -> None:
        with memlens.simulate(gpu=gpu) as sim:
            tensors = _qkv(**qkv)
            if mask is not None:
                call["attn_mask"] = mask()
            sim.blas_workspace("before")
            start = torch.cuda.memory_allocated()
            requested = torch.cuda.memory_stats()["requested_bytes.all.current"]
            out = sdpa(*tensors, **call)
            self.requested = torch.cuda.memory_stats()["requested_bytes.all.current"] - requested
            self.kept = torch.cuda.memory_allocated() - start
            self.forward_peak = torch.cuda.max_memory_allocated() - start
            if out.requires_grad:
                gradient = torch.empty_like(out)
                start = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
                out.backward(gradient)
                self.backward_peak = torch.cuda.max_memory_allocated() - start
            self.trace = sim.trace


@pytest.mark.parametrize(
    ("gpu", "dtype", "kernel"),
    [
        ("T4", FP32, EFFICIENT),
        ("T4", HALF, EFFICIENT),
        ("T4", BF16, MATH),
        ("A100 40GB", FP32, EFFICIENT),
        ("A100 40GB", HALF, FLASH),
        ("A100 40GB", BF16, FLASH),
        ("A100 40GB", FP64, MATH),
        ("3090", BF16, FLASH),
        ("4090", BF16, FLASH),
        ("H100", BF16, CUDNN),
        ("H100", FP32, EFFICIENT),
        ("B200", HALF, CUDNN),
        ("5090", BF16, FLASH),
    ],
)
def test_the_kernel_by_card_and_dtype(gpu: str, dtype, kernel: int) -> None:
    """Turing has no flash and no bf16 kernels; Hopper and server Blackwell prefer cuDNN."""
    with memlens.simulate(gpu=gpu):
        assert torch._fused_sdp_choice(*_qkv(dtype)) == kernel


@pytest.mark.parametrize(
    ("gpu", "case", "call", "kernel"),
    [
        ("A100 40GB", {"head": 256}, {}, FLASH),
        ("A100 40GB", {"head": 264}, {}, EFFICIENT),
        ("A100 40GB", {"head": 60}, {}, FLASH),
        ("4090", {"head": 200}, {}, EFFICIENT),
        ("4090", {"head": 200, "grad": False}, {}, FLASH),
        ("4090", {"head": 256}, {}, FLASH),
        ("4090", {"head": 256}, {"dropout_p": 0.1}, EFFICIENT),
        ("H100", {}, {"dropout_p": 0.1}, FLASH),
        ("H100", {}, {"dropout_p": 0.125}, CUDNN),
        ("H100", {"head": 160}, {}, FLASH),
        ("H100", {"head": 160, "grad": False}, {}, CUDNN),
        ("A100 40GB", {"kv_heads": 2}, {}, MATH),
        ("A100 40GB", {"kv_heads": 2}, {"enable_gqa": True}, FLASH),
        ("A100 40GB", {"kv_heads": 2, "dtype": FP32}, {"enable_gqa": True}, MATH),
        ("T4", {"kv_heads": 2, "dtype": HALF}, {"enable_gqa": True}, MATH),
    ],
)
def test_the_kernel_by_head_dropout_and_groups(gpu: str, case: dict, call: dict, kernel: int) -> None:
    """Each row is one condition of sdp_utils.cpp, in bfloat16 where it names no dtype."""
    with memlens.simulate(gpu=gpu):
        assert torch._fused_sdp_choice(*_qkv(**{"dtype": BF16} | case), **call) == kernel


def test_a_mask_rules_flash_out() -> None:
    """A100 falls to memory-efficient, Hopper stays with cuDNN; a mask that trains leaves cuDNN too."""
    for gpu, kernel in (("A100 40GB", EFFICIENT), ("H100", CUDNN)):
        with memlens.simulate(gpu=gpu):
            mask = torch.empty(512, 512, device="cuda", dtype=BF16)
            assert torch._fused_sdp_choice(*_qkv(BF16), mask) == kernel
            assert torch._fused_sdp_choice(*_qkv(BF16), mask.requires_grad_()) == EFFICIENT


def test_contexts_and_switches_choose() -> None:
    """`sdpa_kernel` allows, with set_priority orders; the switches of torch.backends.cuda forbid."""
    with memlens.simulate(gpu="A100 40GB"):
        qkv = _qkv(BF16)
        with sdpa_kernel(SDPBackend.MATH):
            assert torch._fused_sdp_choice(*qkv) == MATH
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            assert torch._fused_sdp_choice(*qkv) == EFFICIENT
        torch.backends.cuda.enable_flash_sdp(False)
        assert torch._fused_sdp_choice(*qkv) == EFFICIENT
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
        assert torch._fused_sdp_choice(*qkv) == MATH
    assert torch.backends.cuda.flash_sdp_enabled()


def test_no_kernel_left_raises_torchs_error() -> None:
    """Flash alone is allowed and float32 asked for."""
    with (
        memlens.simulate(gpu="A100 40GB"),
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        pytest.raises(RuntimeError, match="No available kernel"),
    ):
        sdpa(*_qkv(FP32))


def test_can_use_answers_for_the_card() -> None:
    """`torch.backends.cuda.can_use_flash_attention` says what the simulated card would."""
    for gpu, flash in (("A100 40GB", True), ("T4", False)):
        with memlens.simulate(gpu=gpu):
            params = torch.backends.cuda.SDPAParams(*_qkv(HALF), None, 0.0, False, False)
            assert torch.backends.cuda.can_use_flash_attention(params) is flash
            assert torch.backends.cuda.can_use_efficient_attention(params)


ROWS = 2 * 8 * 512 * 4  # a float per row: 32 KiB
OUT = 1 * MIB  # 2 x 8 x 512 x 64 in two bytes


def test_flash_keeps_output_sums_and_random_state() -> None:
    """Output, one float a row, and two blocks of 512 bytes; no matrix of scores."""
    cost = Cost("A100 40GB", {"dtype": BF16, "length": 1024})
    assert cost.kept == 2 * OUT + 2 * ROWS + 2 * 512
    assert cost.forward_peak == cost.kept


def test_flash_backward_sums_dq_in_float32() -> None:
    """Three gradients (2 MiB each), dq in float32 (4 MiB), a float a row, copies of (B, H, L, E)."""
    cost = Cost("A100 40GB", {"dtype": BF16, "length": 1024})
    copies = 2 * 2 * OUT  # of the output and of its gradient
    assert cost.backward_peak == 3 * 2 * OUT + 4 * OUT + 2 * ROWS + copies


def test_flash_backward_copies_nothing_in_the_usual_layout() -> None:
    """Views of (B, L, H, E), as models make them, give an output that backward takes as it is."""
    with memlens.simulate(gpu="A100 40GB"):
        tensors = [
            torch.empty(2, 1024, 8, 64, device="cuda", dtype=BF16, requires_grad=True) for _ in range(3)
        ]
        out = sdpa(*(t.transpose(1, 2) for t in tensors)).transpose(1, 2)
        gradient = torch.empty_like(out)
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out.backward(gradient)
        assert torch.cuda.max_memory_allocated() - start == 3 * 2 * OUT + 4 * OUT + 2 * ROWS


def test_flash_splits_the_keys_of_few_queries() -> None:
    """One query of 32 heads against 4,096 keys: parts in float32 are merged at the end."""
    with memlens.simulate(gpu="A100 40GB"), torch.no_grad():
        query = torch.empty(1, 32, 1, 128, device="cuda", dtype=BF16)
        keys = torch.empty(1, 32, 4096, 128, device="cuda", dtype=BF16)
        start = torch.cuda.memory_allocated()
        out = sdpa(query, keys, keys)
        splits = 6  # 32 blocks on 216 slots: 192 / 216 is the first efficiency within 0.85 of the best
        parts = splits * 32 * 128 * 4 + 4096  # and a float each, rounded up to 512
        kept = 32 * 128 * 2 + 512 + 1024
        assert out.shape == (1, 32, 1, 128)
        assert torch.cuda.max_memory_allocated() - start - kept == pytest.approx(parts, abs=4096)


def test_flash_pads_heads_to_eight() -> None:
    """Heads of 60: padded copies of q, k, v (64 wide) are what backward keeps."""
    cost = Cost("A100 40GB", {"dtype": BF16, "length": 1024, "head": 60})
    assert cost.requested == 3 * 2 * OUT + 2 * OUT + 2 * ROWS + 16 + 8


def test_flash_backward_expands_grouped_heads() -> None:
    """8 query heads on 2 key heads: dk and dv for every query head live beside the results."""
    cost = Cost("A100 40GB", {"dtype": BF16, "length": 1024, "kv_heads": 2}, enable_gqa=True)
    grads = 2 * OUT + 2 * OUT // 2
    copies = 2 * 2 * OUT
    assert cost.backward_peak == grads + 4 * OUT + 2 * ROWS + 2 * 2 * OUT + copies


def test_efficient_pads_its_sums_to_32_rows() -> None:
    """500 rows are kept as 512; seed and offset stay on the host."""
    cost = Cost("A100 40GB", {"dtype": FP32, "length": 500})
    assert cost.kept == 2 * 8 * 500 * 64 * 4 + ROWS
    with memlens.simulate(gpu="A100 40GB"):
        tensors = _qkv(FP32, length=500, grad=False)
        start = torch.cuda.memory_allocated()
        out = sdpa(*tensors)
        assert torch.cuda.memory_allocated() - start == out.numel() * 4


def test_efficient_pads_a_bias_whose_rows_are_not_aligned() -> None:
    """A 500 x 500 bool mask becomes a bias of (2, 8, 500, 512) bf16, kept for backward."""
    cost = Cost(
        "A100 40GB",
        {"dtype": BF16, "length": 500},
        mask=lambda: torch.ones(500, 500, device="cuda", dtype=torch.bool),
    )
    out = 2 * 8 * 500 * 64 * 2
    assert cost.kept == out + ROWS + 2 * 8 * 500 * 512 * 2


def test_efficient_takes_an_aligned_bias_as_it_is() -> None:
    """512 columns need no copy: the (512, 512) bias is expanded, and 512 KiB are kept once."""
    cost = Cost(
        "A100 40GB", {"dtype": BF16}, mask=lambda: torch.ones(512, 512, device="cuda", dtype=torch.bool)
    )
    assert cost.kept == OUT + ROWS + 512 * KIB


def test_efficient_backward_in_halves_has_a_workspace() -> None:
    """T4, float16: three gradients, a float a row, and dq in float32 tiles of 64 x 64 with 16 bytes each."""
    cost = Cost("T4", {"dtype": HALF})
    tiles = 2 * 8 * (512 // 64) * (64 * 64 * 4 + 16)
    assert cost.backward_peak == 3 * OUT + ROWS + tiles


def test_efficient_backward_in_float32_multiplies_grad_and_output() -> None:
    """The product (2 MiB) and its row sums live beside three gradients."""
    cost = Cost("A100 40GB", {"dtype": FP32})
    assert cost.backward_peak == 3 * 2 * MIB + 2 * MIB + ROWS


def test_cudnn_states_its_workspace_as_a_guess() -> None:
    """Output, sums and two scalars are kept; the backward's workspace is an assumption with a range."""
    cost = Cost("H100", {"dtype": BF16})
    assert cost.kept == OUT + ROWS + 2 * 512
    assert cost.backward_peak == 3 * OUT + 2 * OUT + ROWS
    (assumption,) = [a for a in cost.trace.assumptions if "cuDNN" in a.what]
    assert assumption.allocated_range == (-2 * OUT - ROWS, 2 * OUT + ROWS)


def test_math_computes_halves_in_float32() -> None:
    """bf16 on a T4: q, k and v in float32 (2 MiB each), the weights (16 MiB) and the output are kept."""
    cost = Cost("T4", {"dtype": BF16})
    assert cost.kept == 3 * 2 * MIB + 16 * MIB + OUT


def test_math_in_float64_adds_the_mask_in_place() -> None:
    """Causal: scores, their softmax and the mask's comparison are the peak, with no sum beside them."""
    with memlens.simulate(gpu="A100 40GB") as sim, torch.no_grad():
        sdpa(*_qkv(FP64, grad=False), is_causal=True)
    largest = [event for event in sim.trace.events if isinstance(event, Alloc) and event.bytes == 32 * MIB]
    assert len(largest) == 3  # scores, softmax, the result of the safe softmax


def test_attention_under_autocast_takes_the_lower_precision() -> None:
    """float32 inputs under bf16 autocast run flash on casts."""
    with memlens.simulate(gpu="A100 40GB"):
        q, k, v = _qkv(FP32, length=1024)
        with torch.autocast("cuda", dtype=BF16):
            out = sdpa(q, k, v)
        assert out.dtype is BF16
        assert "Flash" in type(out.grad_fn).__name__


def test_inference_mode_takes_the_same_kernel() -> None:
    """Below autograd the choice is the same: output and sums, no matrix of scores."""
    with memlens.simulate(gpu="A100 40GB"), torch.inference_mode():
        tensors = _qkv(BF16, length=1024, grad=False)
        start = torch.cuda.memory_allocated()
        out = sdpa(*tensors)
        assert torch.cuda.max_memory_allocated() - start == 2 * OUT + 2 * ROWS + 2 * 512
        assert out.is_cuda
