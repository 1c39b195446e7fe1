"""Recurrent layers on CUDA: cuDNN's outputs and reserve, the flat weights, and the fused cells."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.units import KIB, MIB  # noqa: E402

pytestmark = pytest.mark.torch

STATE = 32 * 512 * 4  # 64 KiB: one state of 32 samples
OUT = 64 * STATE  # 4 MiB: 64 steps of it


def _kept(kind: str, **call) -> int:
    """Bytes that one layer of 256 -> 512 adds in forward, for 64 steps of 32 samples."""
    train, packed = call.pop("train", True), call.pop("packed", False)
    with memlens.simulate(gpu="A100 40GB"):
        layer = getattr(torch.nn, kind)(256, 512, **call).cuda().train(train)
        shape = (32, 64, 256) if call.get("batch_first") else (64, 32, 256)
        x = torch.empty(*shape, device="cuda", requires_grad=True)
        if packed:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, [64] * 16 + [32] * 16)
        start = torch.cuda.memory_allocated()
        result = layer(x)
        kept = torch.cuda.memory_allocated() - start
        out = result[0].data if packed else result[0]
        if train:
            out.sum().backward()
            assert layer.weight_hh_l0.grad.shape == layer.weight_hh_l0.shape
        return kept


@pytest.mark.parametrize(("kind", "numbers", "states"), [("LSTM", 6, 4), ("GRU", 5, 2), ("RNN", 1, 2)])
def test_training_keeps_output_states_and_reserve(kind: str, numbers: int, states: int) -> None:
    """The output, the states in and out, and per step what backward needs: 6, 5 or 1 numbers a unit."""
    assert _kept(kind) == OUT + states * STATE + numbers * OUT


def test_evaluation_keeps_no_reserve() -> None:
    """Only the output and the states come out of an LSTM in eval mode."""
    assert _kept("LSTM", train=False) == OUT + 4 * STATE


def test_two_directions_and_layers_multiply_the_reserve() -> None:
    """Two layers in two directions: the output doubles, the reserve quadruples, as do the states."""
    assert _kept("LSTM", num_layers=2, bidirectional=True) == 2 * OUT + 16 * STATE + 4 * 6 * OUT


def test_batch_first_gives_a_view_of_the_same_bytes() -> None:
    """cuDNN works steps first; the input's copy is gone after the call."""
    assert _kept("LSTM", batch_first=True) == _kept("LSTM")


def test_packed_sequences_count_their_real_steps() -> None:
    """Half the samples end after half the steps: three quarters of output and reserve."""
    assert _kept("LSTM", packed=True) == 7 * OUT * 3 // 4 + 4 * STATE


def test_the_reserve_is_stated_as_an_assumption() -> None:
    """The library decides the size: at least the gates (16 MiB of 24), at most twice as much."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        layer = torch.nn.LSTM(256, 512).cuda()
        layer(torch.empty(64, 32, 256, device="cuda"))
    (told,) = sim.trace.assumptions
    assert "1 recurrent calls" in told.what
    assert told.allocated_range == (-8 * MIB, 24 * MIB)
    assert (told.low_bytes, told.high_bytes) == (-8 * MIB, 24 * MIB)


def test_the_reserves_of_all_layers_are_uncertain() -> None:
    """Three layers of one size, called on one line: three times the range of one."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(64, 32, 512, device="cuda")
        for layer in [torch.nn.LSTM(512, 512).cuda() for _ in range(3)]:
            x = layer(x)[0]
    (told,) = sim.trace.assumptions
    assert told.allocated_range[1] == 3 * 24 * MIB


def test_weights_move_into_one_buffer() -> None:
    """After `.cuda()` four parameters are views of one block; the peak held both copies."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = torch.nn.LSTM(256, 512).cuda()
        weights = sum(p.numel() for p in layer.parameters()) * 4
        assert torch.cuda.memory_stats()["allocation.all.current"] == 1
        assert torch.cuda.memory_allocated() == weights
        assert torch.cuda.max_memory_allocated() == 2 * weights
        assert len({p.data_ptr() for p in layer.parameters()}) == 4


def test_gradients_are_views_of_one_buffer() -> None:
    """After backward the gradients hold as many bytes as the weights, in one block."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = torch.nn.LSTM(256, 512).cuda()
        x = torch.empty(64, 32, 256, device="cuda")
        layer(x)[0].sum().backward()
        start = torch.cuda.memory_allocated()
        layer.zero_grad()
        assert start - torch.cuda.memory_allocated() == sum(p.numel() for p in layer.parameters()) * 4


def test_autocast_casts_the_weights_into_a_buffer_per_call() -> None:
    """bf16: output, states and reserve in halves, casts of the inputs, and of the weights."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = torch.nn.LSTM(256, 512).cuda()
        weights = sum(p.numel() for p in layer.parameters()) * 2
        x = torch.empty(64, 32, 256, device="cuda")
        start = torch.cuda.memory_stats()["requested_bytes.all.current"]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out, _ = layer(x)
        assert out.dtype is torch.bfloat16
        kept = torch.cuda.memory_stats()["requested_bytes.all.current"] - start
        casts = 64 * 32 * 256 * 2 + STATE  # of the input and of the two states
        assert kept == 7 * OUT // 2 + STATE + casts + weights
        out.float().sum().backward()
        assert layer.weight_ih_l0.grad.dtype is torch.float32


def test_dropout_between_layers_keeps_generators_once() -> None:
    """108 multiprocessors x 2,048 threads x 16 bytes, at the first call only, said in the assumptions."""
    with memlens.simulate(gpu="A100 40GB") as sim, torch.no_grad():
        layer = torch.nn.LSTM(256, 512, num_layers=2, dropout=0.1).cuda()
        x = torch.empty(64, 32, 256, device="cuda")
        start = torch.cuda.memory_allocated()
        layer(x)
        assert torch.cuda.memory_allocated() - start == 108 * 2048 * 16
        layer(x)
        assert torch.cuda.memory_allocated() - start == 108 * 2048 * 16
    assert any("generator" in told.what for told in sim.trace.assumptions)


def test_bfloat16_weights_run_step_by_step() -> None:
    """cuDNN takes no bfloat16 layer: every step keeps its gates, cell and state."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        layer = torch.nn.LSTM(256, 512).cuda().bfloat16()
        out, (h, c) = layer(torch.empty(8, 32, 256, device="cuda", dtype=torch.bfloat16))
        out.sum().backward()
        assert (out.shape, h.shape, c.shape) == ((8, 32, 512), (1, 32, 512), (1, 32, 512))
        names = [event.site.operator for event in sim.events if hasattr(event, "site")]
        assert names.count("_thnn_fused_lstm_cell") == 8 * 3
    assert sim.trace.assumptions == []


@pytest.mark.parametrize(("kind", "numbers"), [("LSTMCell", 14), ("GRUCell", 12)])
def test_cells_are_fused(kind: str, numbers: int) -> None:
    """LSTM: state, cell and four gates; GRU: state and five numbers; both gate products stay."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        cell = getattr(torch.nn, kind)(256, 512).cuda()
        x = torch.empty(32, 256, device="cuda")
        h = torch.empty(32, 512, device="cuda")
        sim.blas_workspace("before")
        start = torch.cuda.memory_allocated()
        out = cell(x, (h, h)) if kind == "LSTMCell" else cell(x, h)
        assert torch.cuda.memory_allocated() - start == numbers * 64 * KIB
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        assert cell.weight_ih.grad is not None
