"""What optimizers keep and what a step needs meanwhile, by implementation: for-loop, foreach, fused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def _step(name: str, parameters, steps: int = 1, **options):
    """Gradients, then `steps` steps."""
    optimizer = getattr(torch.optim, name)(parameters, **options)
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    for _ in range(steps):
        optimizer.step()
    return optimizer


def _state_bytes(name: str, dtype=torch.float32, **options) -> int:
    """Bytes of device state for one parameter of 1,024 x 1,024 after a step."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        parameter = nn.Parameter(torch.empty(1024, 1024, device="cuda", dtype=dtype))
        optimizer = _step(name, [parameter], lr=0.1, **options)
        states = [s for s in optimizer.state[parameter].values() if isinstance(s, torch.Tensor)]
        held = sum(s.numel() * s.element_size() for s in states if s.is_cuda and s.dim() > 0)
        ours = sum(a.bytes for a in sim.events if getattr(a, "category", None) == "optimizer_state")
        assert ours >= held, "every state is labelled as one"
        return held


@pytest.mark.parametrize(
    ("name", "options", "mib"),
    [
        ("SGD", {}, 0),
        ("SGD", {"momentum": 0.9}, 4),
        ("Adam", {}, 8),
        ("AdamW", {}, 8),
        ("Adam", {"amsgrad": True}, 12),
        ("Adafactor", {}, 8 / 1024),
        ("Adagrad", {}, 4),
        ("Adadelta", {}, 8),
        ("Adamax", {}, 8),
        ("ASGD", {}, 4),
        ("NAdam", {}, 8),
        ("RAdam", {}, 8),
        ("RMSprop", {}, 4),
        ("RMSprop", {"momentum": 0.9, "centered": True}, 12),
        ("Rprop", {}, 8),
    ],
)
def test_state_per_optimizer(name: str, options: dict, mib: float) -> None:
    """Of a 4 MiB parameter: nothing for SGD, one to three copies, two vectors for Adafactor."""
    assert _state_bytes(name, **options) == mib * MIB


def test_muon_keeps_one_momentum() -> None:
    """Muon, where this torch has it: 4 MiB, and products in bfloat16 meanwhile."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    assert _state_bytes("Muon") == 4 * MIB


def test_state_follows_the_parameters_dtype() -> None:
    """Adam on a bfloat16 parameter of 2 MiB: two states of 2 MiB."""
    assert _state_bytes("Adam", torch.bfloat16) == 4 * MIB


def _lbfgs(steps: int, **options) -> tuple[int, memlens.Trace]:
    """Pairs of 4 MiB vectors that L-BFGS holds after some steps, and the record."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        weight = nn.Parameter(torch.empty(1024, 1024, device="cuda"))
        optimizer = torch.optim.LBFGS([weight], **options)

        def closure():
            optimizer.zero_grad()
            loss = weight.pow(4).sum()
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)
        state = optimizer.state[weight]
        assert len(state["old_dirs"]) == len(state["old_stps"])
        return len(state["old_dirs"]), sim.trace


def test_lbfgs_keeps_a_pair_for_each_iteration() -> None:
    """Three steps of 20 iterations: 59 pairs, 472 MiB, and at least none of them."""
    pairs, trace = _lbfgs(3, history_size=100)
    assert pairs == 59
    (assumption,) = [item for item in trace.assumptions if "L-BFGS" in item.what]
    assert (assumption.low_bytes, assumption.high_bytes) == (-472 * MIB, 0)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_fills_its_history_and_no_more(search) -> None:
    """Of 60 iterations only the last ten pairs are kept, with a line search as well."""
    pairs, _ = _lbfgs(3, history_size=10, line_search_fn=search)
    assert pairs == 10


def test_what_the_closure_reads_is_not_decided_by_lbfgs() -> None:
    """A condition in the user's closure stays a condition that nobody knows."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        weight = nn.Parameter(torch.empty(4, device="cuda"))
        optimizer = torch.optim.LBFGS([weight], max_iter=2)

        def closure():
            loss = weight.sum()
            if loss > 3:
                branches.append("taken to be true")
            loss.backward()
            return loss

        branches: list[str] = []
        optimizer.step(closure)
    assert branches == []
    assert len(sim.values.conditions) == 1


def _second_step_peak(name: str = "Adam", **options) -> int:
    """Bytes above the start of an optimizer's second step on 100 parameters of 1 MiB."""
    with memlens.simulate(gpu="A100 40GB"):
        parameters = [nn.Parameter(torch.empty(512, 512, device="cuda")) for _ in range(100)]
        optimizer = _step(name, parameters, **options)
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        return torch.cuda.max_memory_allocated() - start


def test_foreach_is_the_default_and_needs_one_copy_of_all() -> None:
    """The denominators of 100 parameters live at once: 100 MiB; step counters stay on the host."""
    assert _second_step_peak() == _second_step_peak(foreach=True) == 100 * MIB


def test_the_loop_needs_a_parameters_worth() -> None:
    """A root, a quotient, and the last parameter's denominator until it is replaced."""
    assert _second_step_peak(foreach=False) == 3 * MIB


def test_fused_needs_nothing() -> None:
    """One kernel updates in place."""
    assert _second_step_peak(fused=True) == 0


def test_fused_sgd_needs_nothing() -> None:
    """The same of SGD, whose kernel torch has no meta version of."""
    assert _second_step_peak("SGD", momentum=0.9, fused=True) == 0


@pytest.mark.parametrize(
    ("options", "device"), [({}, "cpu"), ({"fused": True}, "cuda"), ({"capturable": True}, "cuda")]
)
def test_step_counters(options: dict, device: str) -> None:
    """On the host by default, on the device for fused and capturable."""
    with memlens.simulate(gpu="A100 40GB"):
        parameter = nn.Parameter(torch.empty(8, 8, device="cuda"))
        optimizer = _step("Adam", [parameter], steps=2, **options)
        assert optimizer.state[parameter]["step"].device.type == device


def test_dtypes_are_grouped() -> None:
    """Parameters of two dtypes in one optimizer each get states of their own dtype."""
    with memlens.simulate(gpu="A100 40GB"):
        parameters = [
            nn.Parameter(torch.empty(8, 8, device="cuda", dtype=dtype))
            for dtype in (torch.float32, torch.bfloat16)
        ]
        optimizer = _step("Adam", parameters, steps=2)
        assert [optimizer.state[p]["exp_avg"].dtype for p in parameters] == [torch.float32, torch.bfloat16]


def test_state_is_saved_and_loaded() -> None:
    """`state_dict` and back, then another step."""
    with memlens.simulate(gpu="A100 40GB"):
        parameter = nn.Parameter(torch.empty(8, 8, device="cuda"))
        optimizer = _step("Adam", [parameter])
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
        assert optimizer.state[parameter]["exp_avg"].is_cuda


def test_gradients_are_clipped_in_place() -> None:
    """The norm is a number on the device; clipping by value or norm keeps no copy."""
    with memlens.simulate(gpu="A100 40GB"):
        parameters = [nn.Parameter(torch.empty(512, 512, device="cuda")) for _ in range(10)]
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        nn.utils.clip_grad_value_(parameters, 1.0)
        assert norm.is_cuda
        assert torch.cuda.memory_allocated() - start == 512
        assert torch.cuda.max_memory_allocated() - start < 32 * 512


@pytest.mark.parametrize("fused", [False, True])
def test_the_scaler_scales_unscales_and_steps(fused: bool) -> None:
    """Two float16 steps: gradients are unscaled in place, no step is skipped, its state is numbers."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.AdamW(layer.parameters(), fused=fused)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(2):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = layer(torch.empty(8, 1024, device="cuda")).float().sum()
            scaler.scale(loss).backward()
            start = torch.cuda.memory_allocated()
            if not fused:
                scaler.unscale_(optimizer)
                assert torch.cuda.memory_allocated() - start <= 4 * 512
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert "exp_avg" in optimizer.state[layer.weight]
        assert set(scaler.state_dict()) >= {"scale", "growth_factor", "growth_interval"}
        scaler.load_state_dict(scaler.state_dict())
