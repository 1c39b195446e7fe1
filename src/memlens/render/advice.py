"""`Advice` for the terminal: what it needs as it is, what would change that, and how to write it."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from memlens.advice.result import Advice, Advised, Combination, LargestBatch
from memlens.explanation.prediction import fit_answer, short_name
from memlens.render.prediction import ANSWERS, WIDEST, headline, subtitle
from memlens.render.sections import section
from memlens.units import format_bytes

SAME = "What would help, and leaves the result of training as it is"
OTHER = "What would help, and alters the result of training"


class AdviceView:
    """What rich prints for advice; `Console.print(AdviceView(a))` fits the console's width."""

    def __init__(self, advice: Advice) -> None:
        self.advice = advice

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST)
        for part in render(self.advice):
            yield from console.render(part, options.update_width(width))


def render(advice: Advice) -> list[RenderableType]:
    """The parts from top to bottom."""
    if advice.largest_batch is not None:
        return [batch_headline(advice, advice.largest_batch), subtitle(advice.base)]
    parts: list[RenderableType] = [headline(advice.base), subtitle(advice.base)]
    for title, alters in ((SAME, False), (OTHER, True)):
        rows = [item for item in advice.advice if item.changes_result is alters]
        if rows:
            parts.append(section(title, ranking(rows, advice.base.device.memory_bytes or 0)))
    if advice.combination is not None:
        parts.append(section("Together", combination_table(advice.combination)))
    shown = [item for item in advice.advice if item.fits or advice.base.fits is None][:3] or list(
        advice.advice[:3]
    )
    if advice.combination is not None:
        parts.append(section("How to switch it on", code(advice.combination.how)))
    elif shown:
        parts.append(section("How to switch it on", how(shown)))
    if advice.refused:
        of_a_script = advice.base.scenario["mode"] == "script"
        title = "What could not be tried on it" if of_a_script else "What the model does not take"
        parts.append(section(title, refused_table(advice)))
    parts.append(closing_text(advice))
    return parts


def closing_text(advice: Advice) -> Text:
    """The answer once more, in words."""
    if advice.found is False:
        return Text("\nNothing found makes it fit.", style="bold red")
    if not advice.advice:
        return Text("\nNothing found saves a noticeable part of it.", style="bold")
    return Text(f"\nEach line was simulated ({advice.simulated} runs).", style="dim")


def ranking(rows: list[Advised], memory_bytes: int) -> Table:
    """One line a change: what it saves, what is needed then, whether that fits, what it costs."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for align in ("right", "right", "left", "left"):
        table.add_column(justify=align, no_wrap=align == "right")
    table.columns[2].no_wrap = True
    table.add_row(*(Text(head, style="dim") for head in ("  saves", "needs", "", "with")))
    for row in rows:
        what = Text(row.what) + Text(f"\n{row.cost}" if row.cost else "", style="dim")
        saved, needs = format_bytes(row.saves_bytes), format_bytes(row.process_bytes)
        table.add_row(f"  {saved}", needs, verdict(row, memory_bytes), what)
    return table


def verdict(row: Advised, memory_bytes: int) -> Text:
    """In the words of predict; empty where no card was asked for."""
    if row.fits is None:
        return Text("")
    answer = fit_answer(row.fits, row.high_process_bytes, memory_bytes)
    return Text(answer, style=ANSWERS[answer])


def combination_table(combination: Combination) -> Table:
    """The changes of a combination, then what they need together."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    for part in combination.what.split("; "):
        table.add_row(f"  + {part}")
    alters = ", and alter the result of training" if combination.changes_result else ""
    needs, less = format_bytes(combination.process_bytes), format_bytes(combination.saves_bytes)
    answer = f"  need {needs}, {less} less{alters}"
    table.add_row(Text(answer, style="bold green" if combination.fits else "bold"))
    if combination.cost:
        table.add_row(Text(f"  cost: {combination.cost}", style="dim"))
    return table


def how(rows: list[Advised]) -> Table:
    """Code for the first few; --json has it for all."""
    table = Table.grid(padding=(0, 0, 0, 0))
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(Text(f"  # {row.name}", style="dim"))
        table.add_row(code(row.how))
    return table


def code(text: str) -> Text:
    return Text("\n".join(f"  {line}" for line in text.splitlines()), overflow="fold")


def refused_table(advice: Advice) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in advice.refused:
        table.add_row(f"  {item.name}", Text(item.why, style="dim"))
    return table


def batch_headline(advice: Advice, largest: LargestBatch) -> Text:
    """The largest batch in one or two lines."""
    device = advice.base.device
    article = "" if device.name.startswith("a ") else "the "
    card, margin = article + short_name(device.name), format_bytes(largest.margin_bytes)
    if not largest.batch_size or largest.process_bytes is None:
        return Text(f"Not even one sample fits {card} with {margin} to spare", style="bold red")
    text = Text(f"The largest batch on {card} is {largest.batch_size:,}", style="bold green")
    kept, needs = advice.base.peak.process_bytes, format_bytes(largest.process_bytes)
    # with the margin to itself PyTorch caches more, as memlens predict shows
    if kept > largest.process_bytes:
        text += Text(f": it fits into {needs}, {margin} less than the card has")
        grows = f"\n  on the whole card the process grows to {format_bytes(kept)}"
        text += Text(f"{grows}, what PyTorch keeps cached included", style="dim")
    else:
        text += Text(f": it needs {needs}, and {margin} stay free")
    if largest.certain_batch_size < largest.batch_size:
        worst, certain = format_bytes(advice.base.peak.high_process_bytes), largest.certain_batch_size
        sure = f"{certain:,} fits even then" if certain else "even one sample may not fit"
        text += Text(f"\n  at worst it needs {worst}, and does not fit; {sure}", style="yellow")
    if largest.capped:
        text += Text("\n  the search ended there, with room for more", style="dim")
    elif largest.next_process_bytes is not None:
        more = format_bytes(largest.next_process_bytes)
        free = f"with {margin} kept free " if largest.margin_bytes else ""
        text += Text(f"\n  {free}{largest.batch_size + 1:,} would need {more}", style="dim")
    return text
