"""What looks into a model to draw or to export it: it runs once, and nothing is written."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from memlens.scenarios.shims.registry import Shims, shim
from memlens.simulation.torch_api.torchscript import run_once, to_onnx


@shim("torch.utils.tensorboard.writer")
def drawing(shims: Shims, writer: ModuleType) -> dict[str, Any]:
    """`SummaryWriter.add_graph`, which traces the model in evaluation mode."""

    def add_graph(self: Any, model: Any, input_to_model: Any = None, *_: Any, **__: Any) -> None:
        shims.say("add_graph runs the model and draws nothing", "it would trace it")
        was_training = model.training
        model.eval()
        run_once(model, input_to_model)
        model.train(was_training)

    return {"SummaryWriter.add_graph": add_graph}


@shim("tensorboardX.writer")
def drawing_elsewhere(shims: Shims, writer: ModuleType) -> dict[str, Any]:
    """The same of tensorboardX."""
    return drawing(shims, writer)


@shim("torch.onnx")
def exporting(shims: Shims, onnx: ModuleType) -> dict[str, Any]:
    """`torch.onnx.export`."""
    return {"export": to_onnx(lambda assumption: shims.sim.assume(assumption))}
