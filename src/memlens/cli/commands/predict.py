"""`memlens predict`: will it fit, where is the peak, who holds it."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from memlens.cli.next_step import after_prediction
from memlens.cli.options import SCRIPT_OPTIONS, shared, with_unit
from memlens.cli.output import check_output, print_page
from memlens.cli.target import TargetCommand, target_of
from memlens.errors import UsageError

if TYPE_CHECKING:
    from memlens.cli.progress import Progress
    from memlens.devices import Gpu
    from memlens.explanation.prediction import Prediction
    from memlens.scenarios.script.predict_script import Script

EXAMPLE = """
\b
memlens predict timm:resnet50 --batch-size 64 --gpu 4090
memlens predict net.py:make_model --model-arg width=64 --input 3x224x224 --gpu "RTX 3060 12GB"
memlens predict hf:config.json --seq-len 4096 --precision bf16 --optimizer adamw --memory 80GiB
memlens predict train.py --gpu T4 -- --epochs 3 --lr 0.1
memlens predict train.ipynb --gpu T4 --cells 1-4
memlens predict --gpu T4 torchrun --nproc-per-node 1 train.py --epochs 3
"""


@click.command(
    cls=TargetCommand,
    epilog=EXAMPLE,
    short_help="will it fit, where is the peak, who holds it",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TARGET [-- ARGUMENTS]")
@click.option("-m", "module", metavar="MODULE", help="Run this module as a script, as `python -m` does.")
@click.option("--gpu", help="The card: 4090, a100-80gb, T4. Without it: which cards it fits.")
@click.option(
    "--context", metavar="SIZE", callback=with_unit, help="What CUDA itself takes on this card, where known."
)
@shared("--memory", "--batch-size", "--input", "--seq-len")
@click.option("--prompt-tokens", type=int, help="The same for generation: tokens of the prompt.")
@click.option("--new-tokens", type=int, help="With --mode inference: generate so many tokens (hf:).")
@click.option("--cache", default="dynamic", show_default=True, help="Of generation: dynamic or static.")
@shared("--mode", "--optimizer", "--optimizer-arg", "--precision", "--loss", "--accumulate")
@click.option(
    "--grad-checkpointing", is_flag=True, help="Recompute blocks in backward instead of keeping them."
)
@click.option(
    "--steps", default=2, show_default=True, help="Steps to simulate; the peak settles in the second."
)
@shared("--alloc-conf", "--model-arg")
@shared("--cells", "--max-seconds", "--synthetic", "--host-memory")
@click.option("--allow-writes", is_flag=True, help="Of a script: let it write files where it wants.")
@click.option("--show-output", is_flag=True, help="Of a script: show what it printed, on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write a file: .json, .txt, .csv, .html (a page), .memlens (every event), .pickle (as torch's).",
)
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
    **options: Any,
) -> int:
    """Predict the GPU memory of training or running TARGET, without a GPU.

    TARGET is timm:NAME, torchvision:NAME, hf:CONFIG.json, FILE.py:OBJECT or PACKAGE.MODULE:OBJECT, where the
    object is an nn.Module, a class or a function that makes one; or a training script, a notebook or -m
    MODULE, run unchanged, with its own ARGUMENTS after --.

    Or a command line as it is typed (python, torchrun, accelerate launch, a command that pip installed):
    memlens's own options stand before it, and all that follows is the program's.

    Exit code 0: it fits (or no card was named). 1: it does not. 2: the call is wrong.
    """
    check_output(output, force, ENDINGS)
    prediction = predicted(ctx, words, module, options)
    write(prediction, as_json, output)
    if output is None and not as_json and (step := after_prediction(ctx, prediction)):
        click.echo(step)
    return 1 if prediction.fits is False else 0


def predicted(
    ctx: click.Context, words: tuple[str, ...], module: str | None, options: dict[str, Any]
) -> Prediction:
    """The prediction that a command line asks for."""
    from memlens.cli.progress import Progress

    given = {name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    with Progress() as progress:
        progress("loading PyTorch")
        target = target_of(words, module, given, "predict")
        options["gpu"] = card_of(options["gpu"], options.pop("context"))
        if isinstance(target, str):
            mine = {name: value for name, value in options.items() if name not in SCRIPT_OPTIONS}
            return run(target, progress, **mine)
        return run_script(target, progress, **options)


def card_of(gpu: str | None, context: str | None) -> str | Gpu | None:
    """The card as named, or with the context that is known."""
    if context is None:
        return gpu
    if gpu is None:
        raise UsageError(f"--context {context} is of a card, and none is named", hint="name it with --gpu")
    from memlens.devices import find_gpu
    from memlens.units import parse_bytes

    return find_gpu(gpu).with_context(parse_bytes(context))


RESULT_OPTIONS = ("as_json", "output", "force")  # what to do with a prediction; the others say what of
ENDINGS = (".json", ".txt", ".csv", ".html", ".memlens", ".pickle")


def run_script(
    script: Script,
    progress: Progress,
    *,
    host_memory: str | None,
    allow_writes: bool,
    **options: Any,
) -> Prediction:
    """Predict a script as the options say."""
    from memlens.scenarios.script.predict_script import predict_script
    from memlens.units import parse_bytes

    script = replace(
        script, steps=options["steps"], max_seconds=options["max_seconds"], synthetic=options["synthetic"],
        host_memory=parse_bytes(host_memory) if host_memory else None, writes=allow_writes,
        show_output=options["show_output"], cells=options["cells"],
    )  # fmt: skip
    return predict_script(
        script, gpu=options["gpu"], memory=options["memory"], alloc_conf=options["alloc_conf"],
        progress=progress,
    )  # fmt: skip


def run(
    target: str,
    progress: Progress,
    *,
    inputs: tuple[str, ...],
    optimizer_arg: tuple[str, ...],
    model_arg: tuple[str, ...],
    optimizer: str,
    mode: str,
    seq_len: int | None,
    prompt_tokens: int | None,
    **options: Any,
) -> Prediction:
    """Call `memlens.predict` with what the options say."""
    if seq_len is not None and prompt_tokens is not None:
        raise UsageError("--seq-len and --prompt-tokens say the same", hint="leave one of them out")
    from memlens import predict
    from memlens.scenarios.constructor_names import parse_arguments

    # what the user's code prints must not stand in the middle of the result
    with contextlib.redirect_stdout(sys.stderr):
        prediction: Prediction = predict(
            target,
            inputs=list(inputs) or None,
            optimizer=optimizer,
            mode=mode,
            seq_len=prompt_tokens if seq_len is None else seq_len,
            optimizer_args=parse_arguments(optimizer_arg, "--optimizer-arg"),
            model_args=parse_arguments(model_arg, "--model-arg"),
            progress=progress,
            **options,
        )
    return prediction


def write(prediction: Prediction, as_json: bool, output: Path | None) -> None:
    """To the terminal as people read it, or as JSON; to a file by its ending."""
    if output is not None:
        prediction.save(output)
        click.echo(f"wrote {output}", err=True)
    if as_json:
        click.echo(json.dumps(prediction.to_dict(), indent=2))
    elif output is None:
        print_page(prediction)
    else:
        click.echo(prediction.headline())
