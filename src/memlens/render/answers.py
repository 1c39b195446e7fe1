"""How each answer looks: the page that is printed, and what goes into a file of each ending."""

from __future__ import annotations

import base64
import csv
import importlib
import io
import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from memlens.errors import UsageError
from memlens.explanation.explain import as_trace, explain
from memlens.explanation.over_time import curves_to_draw, figure_of, holds_allocations
from memlens.explanation.prediction_record import recall
from memlens.explanation.usage import usage
from memlens.model import Trace
from memlens.render.consoles import as_text, plain_console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memlens.answers import Answer

# class -> the module and function that make its page; a page is what rich prints
PAGES: dict[str, tuple[str, str]] = {
    "Prediction": ("memlens.render.prediction", "PredictionView"),
    "Advice": ("memlens.render.advice", "AdviceView"),
    "Comparison": ("memlens.render.compare", "page"),
    "Explanation": ("memlens.render.snapshot", "page"),
    "Trace": ("memlens.render.answers", "trace_page"),
    "Summary": ("memlens.render.answers", "summary_page"),
    "Simulation": ("memlens.render.answers", "simulation_page"),
}
WIDEST = 120  # columns of text that is read
HTML = "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',Consolas,monospace;line-height:1.25\">{code}</pre>"


def page(answer: Answer) -> RenderableType:
    """What rich prints for an answer."""
    for cls in type(answer).__mro__:
        if cls.__name__ in PAGES:
            module, name = PAGES[cls.__name__]
            made: RenderableType = getattr(importlib.import_module(module), name)(answer)
            return made
    raise TypeError(f"no page is known for {type(answer).__name__}")


def trace_page(trace: Trace) -> RenderableType:
    """A prediction as its prediction, other allocations by who holds them, a run as its curve."""
    prediction = recall(trace)
    if prediction is not None:
        return page(prediction)
    if holds_allocations(trace):
        return page(explain(trace))
    from memlens.render import timeline

    figure = figure_of(trace)
    if not curves_to_draw(trace, figure):
        return trace.headline()
    return f"{timeline.draw(trace, figure=figure, width=80)}\n{timeline.describe(usage(trace))}"


def summary_page(summary: Any) -> RenderableType:
    return Text(str(summary))


def simulation_page(simulation: Any) -> RenderableType:
    """Who holds memory at the peak of what was simulated so far."""
    return page(simulation.trace) if simulation.trace.events else f"{simulation.headline()}: nothing ran yet"


def to_text(answer: Answer) -> str:
    """The page as text, as wide as the terminal, but no wider than is read."""
    width = min(shutil.get_terminal_size((100, 24)).columns, WIDEST)
    return as_text(page(answer), width).rstrip("\n")


def to_html(answer: Answer) -> str:
    """The page in colour, and its chart where matplotlib is installed; everything in it is escaped."""
    console = plain_console(file=io.StringIO(), record=True, width=100, force_jupyter=False)
    console.print(page(answer))
    text = console.export_html(inline_styles=True, code_format=HTML)
    return text + _chart(answer)


def _chart(answer: Answer) -> str:
    trace = _course(answer)
    if trace is None or find_spec("matplotlib") is None:
        return ""
    picture = io.BytesIO()
    _draw(trace).savefig(picture, format="png")
    data = base64.b64encode(picture.getvalue()).decode()
    return f'<img alt="memory over time" style="max-width:100%" src="data:image/png;base64,{data}">'


def show(answer: Answer) -> None:
    """In the terminal, or in the notebook's cell."""
    console = plain_console()
    if console.is_jupyter:
        from IPython.display import display

        display(answer)
    else:
        console.print(page(answer))


def _course(answer: Answer) -> Trace | None:
    """The trace of an answer that has something to draw over time."""
    base = getattr(answer, "base", answer)
    trace = base if isinstance(base, Trace) else getattr(base, "trace", None)
    if not isinstance(trace, Trace) or not curves_to_draw(trace, figure_of(trace)):
        return None
    return trace


def _trace(answer: Answer, what: str) -> Trace:
    trace = _course(answer)
    if trace is None:
        raise UsageError(f"{answer!r} has no course over time, so it cannot become {what}")
    return trace


def _draw(trace: Trace) -> Any:
    from memlens.render import plot

    return plot.picture([("", trace)], kind=figure_of(trace))


def plot(answer: Answer, path: Any = None) -> Any:
    """A matplotlib figure; written to `path` if one is given."""
    from memlens.render import plot as plots

    trace = _trace(answer, "a picture")
    if path is not None:
        plots.save([("", trace)], Path(path), kind=figure_of(trace))
    return _draw(trace)


def report(answer: Answer, path: Any) -> None:
    Path(path).write_bytes(_html(answer))


def to_pandas(answer: Answer) -> Any:
    try:
        import pandas
    except ModuleNotFoundError as problem:
        raise UsageError(
            "to_pandas() needs pandas, which is not installed", hint="pip install pandas, or use to_rows()"
        ) from problem
    return pandas.DataFrame(answer.to_rows())


# files ------------------------------------------------------------------------------------------------


def _json(answer: Any) -> bytes:
    if not hasattr(answer, "to_dict"):
        raise UsageError(f"{answer!r} has no JSON of its own", hint="save it as .memlens")
    return (json.dumps(answer.to_dict(), indent=2) + "\n").encode()


def _text(answer: Answer) -> bytes:
    return as_text(page(answer), 100).encode()


def _csv(answer: Answer) -> bytes:
    rows, text = answer.to_rows(), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _html(answer: Any) -> bytes:
    from memlens.render.report import to_html as trace_to_html

    trace = _trace(answer, "a page")
    name = getattr(answer, "target", "") or str(trace.metadata.get("command", "")) or trace.origin
    return trace_to_html(trace, name).encode()


def _pickle(answer: Answer) -> bytes:
    from memlens.records.snapshot_writer import dumps

    return dumps(_trace(answer, "a torch snapshot"))


FILES: dict[str, Callable[[Any], bytes]] = {
    ".json": _json,
    ".txt": _text,
    ".csv": _csv,
    ".html": _html,
    ".pickle": _pickle,
}


def save(answer: Answer, path: Any) -> None:
    """Write an answer in the format of the ending."""
    path = Path(path)
    if path.suffix == ".memlens":
        from memlens.records.native import save as save_trace

        save_trace(as_trace(_trace(answer, "a record")), path)
    elif path.suffix in FILES:
        path.write_bytes(FILES[path.suffix](answer))
    else:
        endings = ", ".join([*FILES, ".memlens"])
        raise UsageError(f"cannot write {path.name!r}", hint=f"use one of the endings {endings}")
