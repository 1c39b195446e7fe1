"""memlens: predict, measure and explain the memory of PyTorch and of any Python.

Public names are resolved when they are first used: `import memlens` loads neither torch nor rich.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes 8 ms to import, and the program of `memlens run` waits
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# public name -> module that defines it
_PUBLIC: dict[str, str] = {
    "Trace": "memlens.model",
    "Category": "memlens.model",
    "MemlensError": "memlens.errors",
    "load": "memlens.records",
    "mark": "memlens.measurement.child.channel",
    "profile": "memlens.integrations.profile",
    "memory_usage": "memlens.measurement.host.memory_usage",
    "LineProfiler": "memlens.measurement.lines.profiler",
    "load_ipython_extension": "memlens.notebook",
    "simulate": "memlens.simulation.context",
    "Prediction": "memlens.explanation.prediction",
    "predict": "memlens.scenarios.predict",
    "advise": "memlens.advice.advise",
    "max_batch_size": "memlens.advice.advise",
    "Script": "memlens.scenarios.script.predict_script",
    "predict_script": "memlens.scenarios.script.predict_script",
    "advise_script": "memlens.advice.scripts",
    "summary": "memlens.compat.summary",
    "MemTracker": "memlens.integrations.tracker",
    "track": "memlens.integrations.tracker",
    "compare": "memlens.explanation.comparing",
    "on_oom": "memlens.integrations.oom",
    "who_holds": "memlens.measurement.tensors.referrers",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'memlens' has no attribute {name!r}")
    import importlib

    try:
        module = importlib.import_module(_PUBLIC[name])
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise
        from memlens.errors import MissingExtra

        raise MissingExtra("torch", "torch", f"memlens.{name}") from problem
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
