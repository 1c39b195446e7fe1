"""nn.MultiheadAttention and nn.TransformerEncoderLayer: training, evaluation and their fast paths."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import memlens  # noqa: E402
from memlens.errors import UnsupportedOperator  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch

X = 4 * 128 * 256 * 4  # four sequences of 128 x 256: 0.5 MiB
SCORES = 4 * 8 * 128 * 128 * 4  # 2 MiB


class Evaluated:
    """Peak above the start, what stays, and the operators of one forward in evaluation without grad."""

    def __init__(self, module, call, mode=torch.no_grad) -> None:
        with memlens.simulate(gpu="A100 40GB") as sim, mode():
            module = module().cuda().eval()
            x = torch.empty(4, 128, 256, device="cuda")
            sim.blas_workspace("before")
            first, start = len(sim.events), torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            out = call(module, x)
            self.kept = torch.cuda.memory_allocated() - start
            self.peak = torch.cuda.max_memory_allocated() - start
            self.operators = [e.site.operator for e in sim.events[first:] if hasattr(e, "site")]
            self.out = out
        self.trace = sim.trace


def _attention():
    return nn.MultiheadAttention(256, 8, batch_first=True)


def test_attention_without_weights_takes_a_fused_kernel() -> None:
    """Packed projection (3), attention's output (1), the result (1): no scores."""
    ran = Evaluated(_attention, lambda m, x: m(x, x, x, need_weights=False)[0])
    assert "_scaled_dot_product_efficient_attention" in ran.operators
    assert (ran.kept, ran.peak) == (X, 5 * X)


def test_attention_with_weights_writes_them_out() -> None:
    """Projections (3), scores and their softmax: 1.5 + 2 x 2 MiB; result and mean weights stay."""
    ran = Evaluated(_attention, lambda m, x: m(x, x, x, need_weights=True))
    assert ran.peak == 3 * X + 2 * SCORES
    assert ran.kept == X + SCORES // 8
    assert ran.out[1].shape == (4, 128, 128)


def test_training_keeps_the_weights_of_attention() -> None:
    """With grad the plain path runs: projections, and with need_weights the softmax, are kept."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        module = _attention().cuda()
        x = torch.empty(4, 128, 256, device="cuda", requires_grad=True)
        sim.blas_workspace("before")
        start = torch.cuda.memory_allocated()
        out, weights = module(x, x, x)
        assert torch.cuda.memory_allocated() - start >= SCORES + 4 * X
        out.sum().backward()
        assert weights.shape == (4, 128, 128)
        assert module.in_proj_weight.grad.is_cuda


def _layer(**options):
    return lambda: nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, **options)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}])
def test_an_encoder_layer_is_one_operator(options: dict) -> None:
    """In evaluation its parts are fused: bias and activation in one product, residuals added in place."""
    ran = Evaluated(_layer(**options), lambda m, x: m(x))
    assert "_addmm_activation" in ran.operators
    assert "relu" not in ran.operators
    assert ran.kept == X
    assert ran.peak <= 7 * X


def test_an_encoder_computes_on_padding_and_says_so() -> None:
    """Whether padding can be removed depends on data: dense is the upper bound, said once."""
    ran = Evaluated(
        lambda: nn.TransformerEncoder(_layer()(), 2),
        lambda m, x: m(x, src_key_padding_mask=torch.randn(4, 128, device="cuda") > 0),
    )
    assert ran.out.shape == (4, 128, 256)
    (told,) = ran.trace.assumptions
    assert "padding" in told.what
    assert told.low_bytes < 0 == told.high_bytes


def test_inference_mode_is_the_same() -> None:
    """Below autograd the same parts run."""
    call = lambda m, x: m(x)  # noqa: E731
    inference = Evaluated(_layer(), call, mode=torch.inference_mode)
    assert inference.operators == Evaluated(_layer(), call).operators


def test_a_whole_transformer_trains() -> None:
    """Encoder, decoder, a causal mask: forward and backward."""
    with memlens.simulate(gpu="A100 40GB"):
        model = nn.Transformer(256, 8, 2, 2, batch_first=True).cuda()
        mask = model.generate_square_subsequent_mask(16, device="cuda")
        x = torch.empty(4, 16, 256, device="cuda")
        model(x, x, tgt_mask=mask, tgt_is_causal=True).sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        assert torch.cuda.max_memory_allocated() > 30 * MIB


@pytest.mark.filterwarnings("ignore")
def test_flex_attention_is_refused_by_name() -> None:
    """It exists for the compiler; the hint says what to use for an estimate."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(1, 2, 128, 64, device="cuda")
        with pytest.raises(UnsupportedOperator, match="flex_attention") as error:
            flex(x, x, x)
    assert "scaled_dot_product_attention" in error.value.hint
