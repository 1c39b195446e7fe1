"""A `Prediction` for the terminal: the verdict first, then where the memory goes, then what was assumed."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from memlens.explanation.prediction import Prediction, fit_sentence, short_name
from memlens.explanation.top_holders import Holder
from memlens.model import Assumption, Category
from memlens.render import notebook
from memlens.render.bars import bar, chart, resample
from memlens.render.sections import grid, section
from memlens.units import GIB, format_bytes, short_path

if TYPE_CHECKING:
    from memlens.model import Timeline

COLOURS = {
    Category.PARAMETER: "blue",
    Category.BUFFER: "cyan",
    Category.GRADIENT: "magenta",
    Category.OPTIMIZER_STATE: "yellow",
    Category.ACTIVATION: "green",
    Category.INPUT: "bright_blue",
    Category.TEMPORARY: "bright_magenta",
    Category.WORKSPACE: "bright_cyan",
    Category.COMMUNICATION: "bright_yellow",
    Category.FRAGMENTATION: "bright_black",
    Category.CONTEXT: "white",
}
CHART_HEIGHT = 6
WIDEST = 120  # wider bars and lines are harder to read, not easier
NARROW = 60  # below this there are no bars: figures are never cut


class PredictionView:
    """What rich prints for a prediction; `Console.print(PredictionView(p))` fits the console's width."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST)
        yield from render(self.prediction, width)


def render(prediction: Prediction, width: int) -> list[RenderableType]:
    """The parts from top to bottom."""
    parts: list[RenderableType] = [
        headline(prediction),
        subtitle(prediction),
        section("Memory at the peak", categories(prediction, width)),
        section("Where the peak is", place(prediction)),
    ]
    if prediction.notes:
        parts.append(section("Worth knowing", Text("\n".join(f"  {note}" for note in prediction.notes))))
    if prediction.top_holders:
        parts.append(section("What holds most at the peak", holders(prediction, width)))
    if prediction.steps:
        number = prediction.peak.step or prediction.steps[-1].step
        parts.append(section(f"Allocated over step {number}", over_step(prediction, number, width)))
    if prediction.scenario.get("cells"):
        parts += notebook.sections(prediction.scenario)
    if prediction.cards:
        parts.append(section("Cards it fits", cards(prediction, width)))
    if prediction.assumptions:
        parts.append(section("What is assumed, and how far it may move the peak", assumptions(prediction)))
    return parts


def headline(prediction: Prediction) -> Text:
    """The verdict in one line, in the colour of its meaning."""
    if prediction.fits is None:
        style = "bold"
    elif not prediction.fits:
        style = "bold red"
    else:
        style = "bold yellow" if prediction.may_not_fit else "bold green"
    text = Text(capital(fit_sentence(prediction)), style=style)
    if prediction.growth is not None:
        text.append(f"\n{capital(prediction.growth.text())}", style="bold yellow")
    return text


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def subtitle(prediction: Prediction) -> Text:
    """What was predicted, so that a printed page explains itself."""
    scenario = prediction.scenario
    if scenario["mode"] == "script":
        kind = "notebook" if scenario.get("cells") else "script"
        steps = f"{scenario['steps']} step{'' if scenario['steps'] == 1 else 's'} of the {kind}"
        parts = [prediction.target, steps, scenario["precision"], scenario["optimizer"]]
        return Text(", ".join(part for part in parts if part), style="dim")
    parts = [
        prediction.target,
        "training" if scenario["mode"] == "train" else "inference",
        f"batch {scenario['batch_size']} of {' and '.join(scenario['inputs'])}",
        scenario["precision"],
    ]
    if scenario["mode"] == "train":
        arguments = " ".join(f"{k}={v}" for k, v in scenario["optimizer_arguments"].items())
        parts.append(f"{scenario['optimizer']} {arguments}".strip())
    if new := scenario.get("new_tokens"):
        parts.append(f"{new} new token{'' if new == 1 else 's'} ({scenario['cache']} cache)")
    if scenario["accumulate"] > 1:
        parts.append(f"{scenario['accumulate']} batches a step")
    if scenario["grad_checkpointing"]:
        parts.append("gradient checkpointing")
    if setting := scenario.get("alloc_conf"):
        parts.append(setting)
    return Text(", ".join(parts), style="dim")


def categories(prediction: Prediction, width: int) -> RenderableType:
    """A bar a category, then the sum: the process, with its range."""
    peak = prediction.peak
    table = grid()
    for align in ("left", "right", "right", "left"):
        table.add_column(justify=align, no_wrap=True)
    room = width - 45 if width >= NARROW else 0
    whole = max(peak.process_bytes, 1)
    for category, size in sorted(prediction.breakdown.items(), key=lambda item: -item[1]):
        if size:
            share = size / whole
            drawn = Text(bar(share, room), style=COLOURS[category])
            table.add_row(f"  {category.label}", format_bytes(size), percent(share), drawn)
    interval = span(prediction)
    table.add_row(
        Text("  process", style="bold"), Text(format_bytes(whole), style="bold"), "", interval if room else ""
    )
    return table if room or not interval else Group(table, Text("  ") + interval)


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "<1%"


def span(prediction: Prediction) -> Text:
    peak = prediction.peak
    if peak.low_process_bytes == peak.high_process_bytes:
        return Text()
    low, high = format_bytes(peak.low_process_bytes), format_bytes(peak.high_process_bytes)
    return Text(f"between {low} and {high}", style="dim")


def place(prediction: Prediction) -> Table:
    """Phase, module, operator and line of the peak, each only where it is known."""
    peak = prediction.peak
    module = None if peak.module is None else peak.module or "(the model itself)"
    step = f", step {peak.step} of {prediction.scenario['steps']}" if peak.step else ""
    rows = {
        "phase": f"{peak.phase}{step}",
        "module": module,
        "operator": peak.operator,
        "line": short_path(peak.line),
    }
    table = grid()
    for name, value in rows.items():
        if value:
            table.add_row(Text(f"  {name}", style="dim"), Text(value, overflow="fold"))
    return table


def holders(prediction: Prediction, width: int) -> Table:
    """Modules by their path, and lines for what no module made."""
    table = grid()
    if width < NARROW:
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
        for holder in prediction.top_holders:
            table.add_row(f"  {holder_name(holder)}", format_bytes(holder.bytes))
        return table
    for align in ("left", "left", "right", "left"):
        table.add_column(justify=align, no_wrap=True, overflow="ellipsis")
    most = prediction.top_holders[0].bytes
    room = max(width - 65, 8)
    for holder in prediction.top_holders:
        name = Text(f"  {holder_name(holder)}")
        drawn = Text(bar(holder.bytes / most, room), style="green")
        table.add_row(name, Text(holder.what, style="dim"), format_bytes(holder.bytes), drawn)
    return table


def holder_name(holder: Holder) -> str:
    """`layers.3.attn`, or `train.py:12` for what no module made."""
    if holder.module is None:
        return short_path(holder.line)
    return holder.module or "(the model itself)"


def over_step(prediction: Prediction, number: int, width: int) -> Group:
    """Allocated memory over one step, with the phases below; each column is the highest in its span."""
    timeline = prediction.trace.timeline()
    phases = step_phases(prediction, number)
    labels = (format_bytes(prediction.peak.allocated_bytes, precision=1), "0 B")
    margin = max(len(label) for label in labels) + 4
    columns = max(width - margin - 1, 20)
    spans = share_columns(phases, columns)
    values = [v for (_, a, b), n in zip(phases, spans, strict=True) for v in heights(timeline, a, b, n)]
    top = max([*values, 1])
    lines = chart(values, CHART_HEIGHT, top)
    drawn = []
    for row, line in enumerate(lines):
        label = format_bytes(top, precision=1) if row == 0 else ("0 B" if row == CHART_HEIGHT - 1 else "")
        drawn.append(Text(f"  {label:>{margin - 4}} ┤", style="dim") + Text(line, style="green"))
    ruler = "".join(f"└{name}"[:n].ljust(n) for (name, _, _), n in zip(phases, spans, strict=True))
    drawn.append(Text(" " * margin + ruler, style="dim"))
    return Group(*drawn)


def heights(timeline: Timeline, start: int, end: int, columns: int) -> list[int]:
    return resample(timeline.allocated, start, end, columns)


def step_phases(prediction: Prediction, number: int) -> list[tuple[str, int, int]]:
    """The phases of step `number` that have events: name and range of events."""
    phases = [(m.name, a, b) for m, a, b in prediction.trace.phases() if m.step == number and b > a]
    return [phase for phase in phases if phase[0] != "inputs"] or phases


def share_columns(phases: list[tuple[str, int, int]], columns: int) -> list[int]:
    """How many columns each phase gets, `columns` in all: by its events, and by its name if that fits.

    >>> share_columns([("forward", 0, 90), ("backward", 90, 100)], 40)
    [27, 13]
    >>> share_columns([("forward", 0, 50), ("backward", 50, 100)] * 4, 12)
    [1, 2, 1, 2, 1, 2, 1, 2]
    """
    events = sum(b - a for _, a, b in phases)
    names = [len(name) + 2 for name, _, _ in phases]
    least = names if sum(names) <= columns else [1] * len(phases)
    spare = max(columns - sum(least), 0)
    ends = [0, *accumulate(b - a for _, a, b in phases)]
    places = [spare * end // events for end in ends]
    return [low + after - before for low, before, after in zip(least, places, places[1:], strict=False)]


def cards(prediction: Prediction, width: int) -> Table:
    """The catalogue by memory, one line a size and an answer, smallest first."""
    groups: dict[tuple[int, str], list[str]] = {}
    for card in prediction.cards:
        key = (round(card.memory_bytes / GIB), card.answer)
        groups.setdefault(key, []).append(short_name(card.name))
    table = grid()
    for align in ("right", "left", "left"):
        table.add_column(justify=align, no_wrap=True)
    for (size, word), names in groups.items():
        names.sort(key=len)  # "RTX 4090" before "RTX 4090 Laptop GPU", so that it is not among the "more"
        table.add_row(f"  {size} GiB", Text(word, style=ANSWERS[word]), join_names(names, width - 29))
    return table


ANSWERS = {"fits": "green", "may not fit": "yellow", "does not fit": "red"}


def join_names(names: list[str], width: int) -> str:
    """As many of the names as fit in `width`, and how many more there are.

    >>> join_names(["T4", "A10", "RTX 6000"], 15)
    'T4, A10, 1 more'
    """
    for count in range(len(names), 0, -1):
        rest = f", {len(names) - count} more" if count < len(names) else ""
        text = ", ".join(names[:count]) + rest
        if len(text) <= width:
            return text
    return f"{len(names)} cards"


def assumptions(prediction: Prediction) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=0)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for assumption in prediction.assumptions:
        what = Text(f"{assumption.what}: ") + Text(assumption.why, style="dim")
        table.add_row("", what, format_range(assumption))
    return table


def format_range(assumption: Assumption) -> str:
    """`-250 MiB +1.32 GiB`: how far the peak may move; empty where no number is known."""
    sides = (assumption.low_bytes, assumption.high_bytes)
    return " ".join(
        format_bytes(side, sign=True, precision=2 if abs(side) >= GIB else 0) for side in sides if side
    )
