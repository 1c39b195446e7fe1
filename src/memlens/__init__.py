"""memlens: predict, measure and explain the memory of PyTorch and of any Python.

Public names are resolved when they are first used: `import memlens` loads neither torch nor rich.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing `typing` takes 8 ms, and the program of `memlens run` waits for it
if TYPE_CHECKING:  # what type checkers and editors read; tests/typing compares it with _PUBLIC
    from memlens.advice.advise import advise as advise
    from memlens.advice.advise import max_batch_size as max_batch_size
    from memlens.advice.scripts import advise_script as advise_script
    from memlens.compat.summary import summary as summary
    from memlens.errors import MemlensError as MemlensError
    from memlens.explanation.comparison import compare as compare
    from memlens.explanation.explain import explain as explain
    from memlens.explanation.prediction import Prediction as Prediction
    from memlens.integrations.oom import on_oom as on_oom
    from memlens.integrations.profile import profile as profile
    from memlens.integrations.tracker import MemTracker as MemTracker
    from memlens.integrations.tracker import track as track
    from memlens.measurement.child.channel import mark as mark
    from memlens.measurement.host.memory_usage import memory_usage as memory_usage
    from memlens.measurement.lines.profiler import LineProfiler as LineProfiler
    from memlens.measurement.tensors.referrers import who_holds as who_holds
    from memlens.model import Category as Category
    from memlens.model import Trace as Trace
    from memlens.notebook import load_ipython_extension as load_ipython_extension
    from memlens.records import load as load
    from memlens.scenarios.predict import predict as predict
    from memlens.scenarios.script.predict_script import Script as Script
    from memlens.scenarios.script.predict_script import predict_script as predict_script
    from memlens.simulation.context import simulate as simulate

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
    "compare": "memlens.explanation.comparison",
    "explain": "memlens.explanation.explain",
    "on_oom": "memlens.integrations.oom",
    "who_holds": "memlens.measurement.tensors.referrers",
}

if not TYPE_CHECKING:  # a checker that saw __getattr__ would take every name for a public one
    __all__ = ["__version__", *_PUBLIC]

    def __getattr__(name: str) -> object:
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
