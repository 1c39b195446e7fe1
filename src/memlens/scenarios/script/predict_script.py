"""An unmodified training script on a simulated GPU: the outside, which starts it, waits and reads.

The script runs in a process of its own (child.py), with limits on time, memory and what it may write.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import torch

import memlens
from memlens.allocator import AllocatorConfig, parse_config
from memlens.devices import Gpu, as_gpu, custom_gpu
from memlens.errors import MemlensError, TargetError, UsageError
from memlens.explanation.prediction import Prediction
from memlens.measurement.notebooks.cells import ENDING, read_cells
from memlens.messages import ignore
from memlens.model import Assumption, Trace
from memlens.model.user_code import Whose, whose
from memlens.records import native
from memlens.scenarios import userfile
from memlens.scenarios.cards import REFERENCE, SAME_KERNELS, card_assumptions
from memlens.scenarios.finish_prediction import conclude
from memlens.scenarios.script import parent
from memlens.scenarios.script.job import GRACE_SECONDS, Job, Result, read_result
from memlens.scenarios.script.notebook_result import notebook_assumptions, programs_of, tables
from memlens.scenarios.script.ranks import TORCHRUN, other_ranks
from memlens.units import parse_bytes

# the other branches of a script get so many times what its first run took
PATIENCE = 3.0
SURVEY_SECONDS = 60.0  # to find what else is missing
# of the memory that is free now, what the script may take by itself
HOST_SHARE = 0.8


@dataclass(frozen=True)
class Script:
    """A script, its arguments, and how far it may go.

    With `module` it is run as `python -m module`, and `path` is the module's file; with `command` also, as
    the console script of that name, and `module` is its entry point, `package.module:function`.
    """

    path: str
    arguments: tuple[str, ...] = ()
    steps: int = 2
    max_seconds: float = 300.0
    host_memory: int | None = None
    synthetic: bool = False
    writes: bool = False
    show_output: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)  # that it assigns: other values for them
    unknown_is: bool = False  # the value of a condition that was not computed
    changes: Mapping[str, Any] = field(default_factory=dict)  # for the observer: what to change, and how
    module: str = ""
    command: str = ""
    cells: str = ""  # of a notebook: those that are run, `1-3,7`
    ranks: str = ""  # how many processes were asked for, if more than one
    assumptions: tuple[Assumption, ...] = ()  # of the command line that it was read from

    @property
    def name(self) -> str:
        """As it was named: a file, `-m module`, or a command."""
        return self.command or (f"-m {self.module}" if self.module else self.path)

    @property
    def is_notebook(self) -> bool:
        return self.path.endswith(ENDING)


@dataclass(frozen=True)
class Ran:
    """A script's run: the prediction, and what the observer in its process noted."""

    prediction: Prediction
    seen: dict[str, Any]


def is_script(target: Any) -> bool:
    """Whether the target is a file to be run as it is, rather than an object in one."""
    return isinstance(target, str) and target.endswith((".py", ENDING))


def predict_script(
    script: Script | str,
    *,
    gpu: str | Gpu | None = None,
    memory: str | int | None = None,
    alloc_conf: str | None = None,
    progress: Callable[[str], None] = ignore,
) -> Prediction:
    """How much GPU memory `script` needs, found by running it, unchanged, on a simulated card.

    Nothing is computed, downloaded, or written outside a scratch folder. Raises TargetError with one line
    where the script fails, and UsageError where the call is wrong.

    >>> from memlens.scenarios.script.predict_script import Script, predict_script
    >>> predict_script(Script("train.py", ("--epochs", "3")), gpu="T4").fits  # doctest: +SKIP
    True
    """
    script = Script(script) if isinstance(script, str) else script
    return run_script(script, gpu=gpu, memory=memory, alloc_conf=alloc_conf, progress=progress).prediction


def run_script(
    script: Script,
    *,
    gpu: str | Gpu | None = None,
    memory: str | int | None = None,
    alloc_conf: str | None = None,
    progress: Callable[[str], None] = ignore,
    observer: str | None = None,
) -> Ran:
    """As `predict_script`. `observer` names what makes one, `module:function`, in the script's process.

    It is made with the simulation and `script.changes`; what its `seen()` returns comes back.
    """
    if script.is_notebook:
        read_cells(script.path, script.cells)
    elif not Path(script.path).is_file():
        raise userfile.not_a_target(script.path, "train.py")
    if script.steps < 1 or script.max_seconds <= 0:
        raise UsageError(f"nothing is learned in {script.steps} steps and {script.max_seconds} seconds")
    asked = gpu is not None or memory is not None
    card = card_of(gpu if asked else REFERENCE, parse_bytes(memory) if memory is not None else None)
    result, trace = _run(script, card, alloc_conf, progress, observer)
    trace.assumptions += card_assumptions(card) if asked else [SAME_KERNELS]
    trace.assumptions += [*script.assumptions, *ending(script, result)]
    trace.assumptions += notebook_assumptions(script.steps, result.notebook, trace)
    trace.assumptions += list(other_ranks(script.ranks, trace))
    # a library asks to check its arguments rather than to choose
    lines = [line for line in result.conditions if whose(line) is not Whose.LIBRARY]
    if lines and observer is None and not script.unknown_is:
        trace.assumptions.append(the_other_way(script, card, alloc_conf, result, lines, trace, progress))
    config = AllocatorConfig() if result.alloc_conf is None else parse_config(result.alloc_conf)
    prediction = conclude(
        trace, card, config, asked=asked, target=" ".join([script.name, *script.arguments]),
        scenario={**describe(script, result), **tables(result.notebook, trace)}, operators=result.operators,
        elapsed_seconds=result.elapsed_seconds, versions=(memlens.__version__, torch.__version__),
    )  # fmt: skip
    return Ran(prediction, result.seen)


def on_nothing(script: Script, result: Result) -> str:
    """What to do about a script that puts nothing on the GPU."""
    if result.notebook is not None:
        programs = programs_of(result.notebook)
        return f"memlens predict {programs[0]}" if programs else "it has to choose 'cuda' by itself"
    names = userfile.names_in(script.path)
    return f"name what makes the model: {names}" if names else "it has to choose 'cuda' by itself"


def card_of(gpu: str | Gpu | None, memory_bytes: int | None) -> Gpu:
    """The card that is simulated: as named, with another memory if given, or by its memory only."""
    card = as_gpu(gpu)
    if card is None:
        return custom_gpu(memory_bytes or 0)
    return replace(card, memory_bytes=memory_bytes) if memory_bytes is not None else card


def describe(script: Script, result: Result) -> dict[str, Any]:
    """What was run, in words and numbers for json."""
    return {
        "mode": "script",
        "arguments": list(script.arguments),
        "precision": result.precision,
        "optimizer": " and ".join(result.optimizers) or "none",
        "steps": result.steps,
        "stopped": result.stopped,
        "alloc_conf": result.alloc_conf,
    }


def ending(script: Script, result: Result) -> Iterator[Assumption]:
    """What was not seen because the script did not run to its end."""
    steps = f"{result.steps} step{'s' if result.steps != 1 else ''}"
    if result.late:
        yield Assumption(
            f"stopped after {script.max_seconds:g} seconds, with {steps} taken",
            "what comes later was not seen; --max-seconds gives it more time",
        )
    elif result.stopped:
        yield Assumption(
            f"stopped after {steps}",
            "what the script does later (an evaluation, a last checkpoint) was not seen; --steps runs more",
        )


def the_other_way(
    script: Script,
    card: Gpu,
    alloc_conf: str | None,
    result: Result,
    lines: list[str],
    trace: Trace,
    progress: Callable[[str], None],
) -> Assumption:
    """Run it again with every condition true that was taken as false: what that may be more, or less."""
    named = ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
    what = f"conditions on values that nobody computes are taken as False ({named})"
    seconds = min(script.max_seconds, PATIENCE * result.elapsed_seconds + GRACE_SECONDS)
    again = replace(script, unknown_is=True, max_seconds=seconds, show_output=False)
    progress("once more, with the other branches")
    try:
        other, seen = _run(again, card, alloc_conf, progress, None)
    except MemlensError as problem:
        why = f"the other branches could not be seen ({problem.message}), so they may need more"
        return Assumption(what, why)
    if other.late or other.steps < result.steps:
        return Assumption(what, f"with all of them true it took {other.steps} steps in {seconds:.0f} seconds")
    more = seen.timeline().peak_reserved_bytes - trace.timeline().peak_reserved_bytes
    return Assumption(what, "it was run once more with all of them true", min(more, 0), max(more, 0))


def _run(
    script: Script,
    card: Gpu,
    alloc_conf: str | None,
    progress: Callable[[str], None],
    observer: str | None,
) -> tuple[Result, Trace]:
    """What the script's process learned; run again with torchrun's variables if it needs them."""
    result, trace = _execute(script, card, alloc_conf, progress, observer)
    problem = result.error
    if problem is None:
        assert trace is not None
        if not trace.events:
            raise TargetError(f"{script.name} put nothing on the GPU", hint=on_nothing(script, result))
        return result, trace
    if problem.missing_variable and problem.missing_variable not in script.environment:
        ranked = replace(script, environment={**TORCHRUN, **script.environment})
        result, trace = _run(ranked, card, alloc_conf, progress, observer)
        trace.assumptions.append(
            Assumption(
                "one process of torchrun", f"the script asks for {problem.missing_variable}; rank 0 of 1"
            )
        )
        return result, trace
    hint = problem.hint
    if problem.is_missing_data and not script.synthetic:
        progress("looking for all that is missing")
        hint = f"{hint}; {all_missing(script, card, alloc_conf)}"
    raise TargetError(problem.message, hint=hint)


def _execute(
    script: Script,
    card: Gpu,
    alloc_conf: str | None,
    progress: Callable[[str], None],
    observer: str | None,
) -> tuple[Result, Trace | None]:
    """Run the child, wait, and read its result, and its trace if all went well."""
    host_bytes = script.host_memory or int(psutil.virtual_memory().available * HOST_SHARE)
    job = Job(
        script.path, list(script.arguments), card, script.steps, script.max_seconds, host_bytes, alloc_conf,
        writes=script.writes, synthetic=script.synthetic, observer=observer, unknown_is=script.unknown_is,
        environment=script.environment, constants=script.constants, changes=script.changes,
        module=script.module, command=script.command, cells=script.cells,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="memlens-", ignore_cleanup_errors=True) as scratch:
        ending = parent.execute(job, scratch, script.show_output, progress)
        result = read_result(scratch)
        if result is None:
            message, hint = parent.vanished(script.name, script.max_seconds, ending, scratch)
            raise TargetError(message, hint=hint)
        if result.error is not None:
            return result, None
        return result, native.load(os.path.join(scratch, "trace.memlens"))


def all_missing(script: Script, card: Gpu, alloc_conf: str | None) -> str:
    """What else the script wants, found by running it on with made-up data: not one thing at a time."""
    seconds = min(script.max_seconds, SURVEY_SECONDS)
    survey = replace(script, synthetic=True, max_seconds=seconds, show_output=False)
    try:
        result, _ = _execute(survey, card, alloc_conf, ignore, None)
    except MemlensError as problem:
        return f"with --synthetic: {problem.message}"
    made = "; ".join(result.made_up)
    if result.error is None:
        return f"--synthetic runs it: {made}"
    rest = f"{result.error.message}: {result.error.hint}" if result.error.hint else result.error.message
    return f"--synthetic goes on to here: {made}; {rest}" if made else "--synthetic does not help"
