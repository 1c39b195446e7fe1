"""TorchScript and exporters: compiled modules run on the card, others stay as they are."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import memlens
from memlens.errors import UnsupportedOperator

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated"),
    pytest.mark.filterwarnings("ignore:.*is not supported in Python 3.14"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.BatchNorm1d(256))


def two_steps(net: nn.Module) -> tuple[int, list[str]]:
    """The peak of a training, and what was stated."""
    with memlens.simulate(gpu="T4") as sim:
        net.to("cuda")
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            net(torch.randn(64, 256, device="cuda")).sum().backward()
            optimizer.step()
        assert all(parameter.is_cuda and parameter.grad.is_cuda for parameter in net.parameters())
    return sim.trace.timeline().peak_allocated_bytes, [one.what for one in sim.trace.assumptions]


@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_compiled_module_needs_what_it_is_made_of_needs(how: str) -> None:
    """Its weights reach the card, train there, and are on the host again afterwards, as they were."""
    plain = model()
    compiled = torch.jit.script(plain) if how == "script" else torch.jit.trace(plain, torch.ones(2, 256))
    before = [parameter.clone() for parameter in compiled.parameters()]
    assert two_steps(compiled)[0] == two_steps(plain)[0]
    after = list(compiled.parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert compiled(torch.ones(2, 256)).device.type == "cpu"


def test_compiling_inside_leaves_the_module(tmp_path: Path) -> None:
    """It says so, runs, saves itself and can be copied; classes with compiled methods are made."""
    with memlens.simulate(gpu="T4") as sim:
        net, x = model().cuda(), torch.randn(2, 256, device="cuda")

        class Scale(torch.jit.ScriptModule):
            @torch.jit.script_method
            def forward(self, value: torch.Tensor) -> torch.Tensor:
                return value * 2

        traced, scripted = torch.jit.trace(net, x), torch.jit.script(Scale())
        assert scripted(traced(x)).is_cuda
        traced.save(str(tmp_path / "traced.pt"))
        torch.jit.save(copy.deepcopy(scripted), str(tmp_path / "scripted.pt"))
        function = torch.jit.script(torch.nn.functional.silu)
        assert function(x).is_cuda
    told = {one.what for one in sim.trace.assumptions}
    assert {f"torch.jit.{how} is taken as eager code" for how in ("trace", "script")} <= told
    assert not hasattr(net, "save")


def test_compiled_functions_run() -> None:
    """A function that was compiled before the simulation, with its gradient."""

    @torch.jit.script
    def gelu(x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 * (1.0 + torch.erf(x / 1.41421))

    with memlens.simulate(gpu="T4"):
        x = torch.randn(8, device="cuda", requires_grad=True)
        gelu(x).sum().backward()
        assert x.grad is not None
        assert x.grad.is_cuda


def test_a_file_of_a_compiled_module(tmp_path: Path) -> None:
    """Loaded where `map_location` wants it."""
    path = str(tmp_path / "net.pt")
    torch.jit.script(model()).save(path)
    with memlens.simulate(gpu="T4"):
        assert next(torch.jit.load(path, map_location="cuda").parameters()).is_cuda
        assert not next(torch.jit.load(path).parameters()).is_cuda


def test_exporting_is_refused() -> None:
    """In words, and the process goes on."""
    with memlens.simulate(gpu="T4"):
        net, x = model().cuda(), torch.randn(2, 256, device="cuda")
        with pytest.raises(UnsupportedOperator, match=r"torch\.export\.export is not simulated"):
            torch.export.export(net, (x,))
        assert net(x).is_cuda
