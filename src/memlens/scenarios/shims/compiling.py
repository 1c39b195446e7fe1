"""torch.compile: the script runs as if it were not there."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from memlens.scenarios.frameworks import Shims, shim

_WHAT = "torch.compile is left out: everything runs eagerly"
_WHY = "what the compiler fuses needs less; its own warm-up may need more"


@shim("torch")
def eager(shims: Shims, torch: ModuleType) -> dict[str, Any]:
    """`torch.compile` as a function, as a decorator with and without arguments, and as a method."""

    def compile(model: Any = None, **options: Any) -> Any:
        shims.say(_WHAT, _WHY)
        return model if model is not None else lambda function: function

    def compile_module(self: Any, *args: Any, **options: Any) -> None:
        shims.say(_WHAT, _WHY)

    return {"compile": compile, "nn.Module.compile": compile_module}
