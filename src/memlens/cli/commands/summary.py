"""`memlens summary`: one row per layer, with bytes that are true."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlens.cli.options import shared
from memlens.cli.output import check_output, print_text
from memlens.errors import UsageError

if TYPE_CHECKING:
    from memlens.summaries.summary import Summary

EXAMPLE = """
\b
memlens summary timm:resnet50 --depth 2
memlens summary net.py:make_model --input 3x224x224 --sort kept_bytes
memlens summary examples/vgg16.py:vgg16 --input 3x224x224 --formulas
memlens summary net.py:Net --input 3x512x704 --like torchsummary
"""


@click.command(
    epilog=EXAMPLE,
    short_help="one row per layer, with bytes that are true",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("target")
@shared("--batch-size", "--input", "--seq-len")
@click.option("--mode", default="train", show_default=True, help="train, inference, or eval (dropout off).")
@shared("--precision", "--model-arg")
@click.option("--depth", type=click.IntRange(0), help="Deeper rows are added to those above.  [default: 3]")
@click.option("--columns", metavar="NAME,...", help="output_size,num_params,kept_bytes,mult_adds and others.")
@click.option("--sort", metavar="NAME", help="A list instead of a tree, the largest first: kept_bytes.")
@click.option("--formulas", is_flag=True, help="How each number comes about, with the row's own values.")
@click.option("--like", metavar="TOOL", help="torchsummary or torchinfo: what it would print, and the truth.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema memlens.summary/1).")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a file: .csv, .json or .txt.")
@shared("--force")
def command(
    target: str,
    as_json: bool,
    output: Path | None,
    force: bool,
    depth: int | None,
    columns: str | None,
    sort: str | None,
    formulas: bool,
    **options: Any,
) -> None:
    """Show what every layer of TARGET makes, and what it keeps for backward, without a GPU.

    TARGET is timm:NAME, torchvision:NAME, hf:CONFIG.json, FILE.py:OBJECT or PACKAGE.MODULE:OBJECT, where the
    object is an nn.Module, a class or a function that makes one.
    """
    check_output(output, force, (".csv", ".json", ".txt"))
    check_together(depth, columns, sort, formulas, options["like"], as_json, output)
    from memlens.summaries.view import check_columns, check_sort

    shown = check_columns(columns.replace(",", " ").split()) if columns else ()
    if sort is not None:
        check_sort(sort)
    summary = run(target, **options)
    if as_json or (output is not None and output.suffix != ".txt"):
        from memlens.summaries.view import narrowed

        data = narrowed(summary, depth, sort)
        document = json.dumps(data.to_dict(), indent=2)
        if output is not None:
            write(output, data.to_csv() if output.suffix == ".csv" else document)
        if as_json:
            click.echo(document)
        return
    width = shutil.get_terminal_size((120, 24)).columns if output is None else None
    text = page(summary, depth, shown, sort, formulas, width)
    if output is None:
        print_text(text)
    else:
        write(output, text)


def page(
    summary: Summary,
    depth: int | None,
    columns: tuple[str, ...],
    sort: str | None,
    formulas: bool,
    width: int | None,
) -> str:
    """What people read: the table, the formulas or another tool's numbers."""
    from memlens.render.summaries.formulas import to_formulas
    from memlens.render.summaries.layers import to_text
    from memlens.render.summaries.like import to_like
    from memlens.summaries.view import DEFAULT_DEPTH, narrowed

    if formulas:
        return to_formulas(narrowed(summary, depth, sort), width)
    if summary.like:
        return to_like(summary, summary.like, width)
    level = DEFAULT_DEPTH if depth is None else depth
    return to_text(summary, width=width, depth=level, columns=columns, sort=sort)


def write(output: Path, text: str) -> None:
    output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    click.echo(f"wrote {output}", err=True)


def check_together(
    depth: int | None,
    columns: str | None,
    sort: str | None,
    formulas: bool,
    like: str | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """An option without effect is an error."""
    if formulas and like:
        raise UsageError("--formulas and --like are two pages", hint="ask for one of them")
    data = as_json or (output is not None and output.suffix != ".txt")
    if formulas and data:
        raise UsageError("--formulas has no effect on the data", hint="write a .txt, or leave --formulas out")
    if columns and (formulas or like or data):
        where = "--formulas" if formulas else "the data, whose columns are fixed" if data else "--like"
        raise UsageError(f"--columns has no effect on {where}")
    if like and not data and (depth is not None or sort):
        raise UsageError(f"{'--sort' if sort else '--depth'} has no effect on --like, which has every output")


def run(target: str, *, inputs: tuple[str, ...], model_arg: tuple[str, ...], **options: Any) -> Summary:
    """Call `summarise` with what the options say, and show its progress on stderr."""
    from memlens.cli.progress import Progress
    from memlens.scenarios.constructor_names import parse_arguments
    from memlens.summaries.summarise import summarise

    with Progress() as progress:
        return summarise(
            target, inputs=list(inputs) or None, progress=progress,
            model_args=parse_arguments(model_arg, "--model-arg"), **options,
        )  # fmt: skip
