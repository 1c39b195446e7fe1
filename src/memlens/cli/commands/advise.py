"""`memlens advise`: what would make it fit, ranked; the largest batch."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from memlens.cli.options import SCRIPT_OPTIONS, shared
from memlens.cli.output import check_output, print_page
from memlens.cli.target import TargetCommand, target_of
from memlens.errors import UsageError

if TYPE_CHECKING:
    from memlens.advice.result import Advice
    from memlens.cli.progress import Progress
    from memlens.scenarios.script.predict_script import Script

EXAMPLE = """
\b
memlens advise net.py:make_model --input 3x224x224 --batch-size 64 --gpu 3060
memlens advise hf:config.json --seq-len 4096 --memory 24GiB --same-result
memlens advise timm:vit_large_patch16_224 --gpu 4090 --largest-batch
memlens advise train.py --gpu T4 -- --epochs 3 --lr 0.1
"""


@click.command(
    cls=TargetCommand,
    epilog=EXAMPLE,
    short_help="what would make it fit, ranked; the largest batch",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TARGET [-- ARGUMENTS]")
@click.option("-m", "module", metavar="MODULE", help="Run this module as a script, as `python -m` does.")
@click.option("--gpu", help="The card: 4090, a100-80gb, T4. Without it: what saves most.")
@shared("--memory")
@click.option("--largest-batch", is_flag=True, help="Only the largest batch that fits.")
@click.option(
    "--margin", default="5%", show_default=True, metavar="SIZE", help="Left free by it: 5% or 512MiB."
)
@click.option("--same-result", is_flag=True, help="Nothing that alters the result of training.")
@shared(
    "--batch-size",
    "--input",
    "--seq-len",
    "--mode",
    "--optimizer",
    "--optimizer-arg",
    "--precision",
    "--loss",
    "--accumulate",
)
@click.option("--grad-checkpointing", is_flag=True, help="The blocks are recomputed in backward already.")
@click.option("--keeps-gradients", is_flag=True, help="The loop calls zero_grad(set_to_none=False).")
@shared("--alloc-conf", "--model-arg")
@click.option("--batch-arg", metavar="NAME", help="Of a script: its argument or constant for the batch size.")
@shared("--cells", "--max-seconds", "--synthetic", "--host-memory")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file: .json or .txt.")
@shared("--force")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    module: str | None,
    as_json: bool,
    output: Path | None,
    force: bool,
    largest_batch: bool,
    **options: Any,
) -> int:
    """Say what would make training or running TARGET fit a card, each change simulated.

    TARGET is what `memlens predict` takes. A script is run once for each change, which is made from outside;
    its own ARGUMENTS follow after --, or it is named by a command line as it is typed.

    Exit code 0: it fits, as it is or with what was found. 1: nothing found. 2: the call is wrong.
    """
    from memlens.cli.progress import Progress

    check_output(output, force, (".json", ".txt"))
    given = {name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    wrong = given & ({"batch_size", "same_result", "keeps_gradients"} if largest_batch else {"margin"})
    if wrong:
        names = " and ".join("--" + name.replace("_", "-") for name in sorted(wrong))
        raise UsageError(f"{names} has no meaning with{'' if largest_batch else 'out'} --largest-batch")
    with Progress() as progress:
        progress("loading PyTorch")
        target = target_of(words, module, given, "advise")
        if isinstance(target, str):
            mine = {name: value for name, value in options.items() if name not in SCRIPT_OPTIONS}
            advice = run(largest_batch, target, progress, **mine)
        else:
            advice = run_script(largest_batch, target, progress, **options)
    write(advice, as_json, output)
    return 1 if advice.found is False else 0


def run_script(
    only_batch: bool,
    script: Script,
    progress: Progress,
    *,
    host_memory: str | None,
    margin: str,
    same_result: bool,
    **options: Any,
) -> Advice:
    """Advice for a script."""
    from memlens.advice.scripts import advise_script, largest_batch_of_script
    from memlens.units import parse_bytes

    script = replace(
        script, max_seconds=options["max_seconds"], synthetic=options["synthetic"],
        cells=options["cells"],
        host_memory=parse_bytes(host_memory) if host_memory else None,
    )  # fmt: skip
    call = {name: options[name] for name in ("gpu", "memory", "alloc_conf", "batch_arg")}
    if only_batch:
        return largest_batch_of_script(script, margin=margin, progress=progress, **call)
    return advise_script(script, same_result=same_result, progress=progress, **call)


def run(
    only_batch: bool,
    target: str,
    progress: Progress,
    /,
    *,
    inputs: tuple[str, ...],
    optimizer_arg: tuple[str, ...],
    model_arg: tuple[str, ...],
    keeps_gradients: bool,
    same_result: bool,
    margin: str,
    batch_size: int,
    **options: Any,
) -> Advice:
    """Call the library with what the options say."""
    from memlens.advice.advise import advise, largest_batch
    from memlens.scenarios.constructor_names import parse_arguments

    call: dict[str, Any] = {
        **options,
        "inputs": list(inputs) or None,
        "optimizer_args": parse_arguments(optimizer_arg, "--optimizer-arg"),
        "model_args": parse_arguments(model_arg, "--model-arg"),
    }
    # what the user's code prints must not stand in the middle of the result
    with contextlib.redirect_stdout(sys.stderr):
        if only_batch:
            return largest_batch(target, margin=margin, progress=progress, **call)
        return advise(
            target, batch_size=batch_size, set_to_none=not keeps_gradients, same_result=same_result,
            progress=progress, **call,
        )  # fmt: skip


def write(advice: Advice, as_json: bool, output: Path | None) -> None:
    """To the terminal as people read it, or as JSON; to a file by its ending."""
    if output is not None:
        if output.suffix == ".json":
            text = json.dumps(advice.to_dict(), indent=2) + "\n"
        else:
            from memlens.render.advice import AdviceView
            from memlens.render.consoles import as_text

            text = as_text(AdviceView(advice), 100)
        output.write_text(text, encoding="utf-8")
        click.echo(f"wrote {output}", err=True)
    if as_json:
        click.echo(json.dumps(advice.to_dict(), indent=2))
    elif output is None:
        from memlens.render.advice import AdviceView

        print_page(AdviceView(advice))
