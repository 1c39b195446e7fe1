"""TorchScript and exporters: what they make of a module on the simulated card is the module itself.

They would look into tensors that have no data. Tracing runs the module once, and so does an export to ONNX;
what is run later runs eagerly. Modules that were compiled before the simulation are moved in
moved_modules.py, and run as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memlens.errors import UnsupportedOperator
from memlens.model import Assumption
from memlens.model.user_code import Whose, whose
from memlens.simulation.torch_api.device import GPU, as_device

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_WHY = "compiled code may fuse operators and keep less; how much is not simulated"
_EXPORTERS = "torch.export.export torch.export.draft_export torch.jit._get_trace_graph"


class Save:
    """The method of a compiled module that writes it to a file; it goes with the module into copies."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, f: Any, *_: Any, **__: Any) -> None:
        torch.save(self.module.state_dict(), f)


def run_once(model: Any, args: Any, kwargs: Any = None) -> None:
    """What tracing does: a forward pass, which autograd records, and whose graph goes with it."""
    model(*(args if isinstance(args, (tuple, list)) else (args,)), **(kwargs or {}))


def replacements(sim: Simulation) -> dict[str, Any]:
    """Dotted names and their stand-ins."""

    def eager(what: str) -> None:
        sim.assume(Assumption(f"{what} is taken as eager code", _WHY))

    def saved(made: Any) -> Any:
        """A module that can save itself, as compiled ones can; afterwards it is as it was."""
        if isinstance(made, nn.Module) and not hasattr(made, "save"):
            made.__dict__["save"] = Save(made)
            sim.at_end.append(lambda: made.__dict__.pop("save", None))
        return made

    def trace(func: Any, example_inputs: Any = None, *_: Any, **options: Any) -> Any:
        eager("torch.jit.trace")
        run_once(func, () if example_inputs is None else example_inputs, options.get("example_kwarg_inputs"))
        return saved(func)

    def trace_module(mod: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> Any:
        eager("torch.jit.trace")
        for name, args in inputs.items():
            run_once(getattr(mod, name), args)
        return saved(mod)

    compiled = torch.jit.script

    def script(obj: Any = None, *args: Any, **options: Any) -> Any:
        if whose(sys._getframe(1).f_code.co_filename) is Whose.TORCH:  # it compiles functions of its own
            return compiled(obj, *args, **options)
        eager("torch.jit.script")
        return saved(obj)

    def same(obj: Any, *_: Any, **__: Any) -> Any:
        return obj

    table: dict[str, Any] = {
        "torch.jit.trace": trace,
        "torch.jit.trace_module": trace_module,
        "torch.jit.script": script,
        "torch.jit.freeze": same,
        "torch.jit.optimize_for_inference": same,
        "torch.jit.save": lambda m, f, *_, **__: torch.save(m.state_dict(), f),
        "torch.jit.load": loading(torch.jit.load),
    }
    if "torch.onnx" in sys.modules:  # else nobody here has its `export`, and it takes a while to load
        table["torch.onnx.export"] = to_onnx(sim.assume)
    return table | {name: refuse(name) for name in _EXPORTERS.split()}


def loading(load_archive: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.jit.load`."""

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Compiled modules of a file are read to the host, and moved to where they are wanted."""
        wanted = None if map_location is None else as_device(map_location)
        try:
            made = load_archive(f, None if wanted is None else "cpu", *args, **kwargs)
        except RuntimeError as problem:
            if "CUDA" not in str(problem):  # saved from a card, and wanted where it was
                raise
            made, wanted = load_archive(f, "cpu", *args, **kwargs), GPU
        return made if wanted is None or wanted.type != "cuda" else made.to(wanted)

    return load


def to_onnx(assume: Callable[[Assumption], None]) -> Callable[..., None]:
    """`torch.onnx.export`: the model runs once, and no file is written."""

    def export(model: Any, args: Any = (), *_: Any, kwargs: Any = None, **__: Any) -> None:
        assume(Assumption("torch.onnx.export runs the model and writes nothing", "weights have no data"))
        with torch.no_grad():
            run_once(model, args, kwargs)

    return export


def refuse(name: str) -> Callable[..., Any]:
    """An exporter that ends here, before C++ finds out that a tensor has no data."""

    def exporter(*_: Any, **__: Any) -> Any:
        raise UnsupportedOperator(
            f"{name} is not simulated: what it records is not what runs on the card",
            hint="export outside the simulation, and simulate the module",
        )

    return exporter
