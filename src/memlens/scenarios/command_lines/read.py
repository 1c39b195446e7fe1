"""From the words of a command line to the `Script` that is run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from memlens.errors import UsageError
from memlens.measurement.run.programs import interpreted
from memlens.model import Assumption
from memlens.scenarios.command_lines import launchers, names
from memlens.scenarios.script.predict_script import Script
from memlens.scenarios.userfile import not_a_target

EXAMPLE = "memlens predict --gpu T4 python train.py --epochs 3"


def read_command_line(words: list[str]) -> Script:
    """The script that a command line starts, whatever stands in front of it.

    >>> read_command_line(["torchrun", "--nproc-per-node", "1", "train.py", "--lr", "1"]).arguments
    ('--lr', '1')
    """
    typed, ranks, stated = shlex.join(words), "", list[Assumption]()
    environment: dict[str, str] = {}
    while True:
        while words and names.ASSIGNMENT.match(words[0]):
            name, _, environment[name] = words[0].partition("=")
            words = words[1:]
        if tuple(words[:2]) in names.WRAPPERS:
            stated.append(_elsewhere(" ".join(words[:2])))
            words = words[2:]
            continue
        if words and names.INTERPRETER.match(os.path.basename(words[0])):
            stated += _another_python(words[0])
            target = interpreted(words).target
            if not target:
                lost = next((word for word in words[1:] if word.endswith(".py")), None)
                if lost is not None and not os.path.isfile(lost):
                    raise not_a_target(lost, "train.py")
                raise UsageError(f"`{typed}` runs no script and no module", hint=EXAMPLE)
            words = list(target)
            continue
        launcher = _launcher(words)
        if launcher is None:
            break
        launch = launchers.TABLE[launcher](words[2:] if words[0] == "-m" else words[1:])
        words, environment = launch.words, {**launch.environment, **environment}
        stated, ranks = [*stated, *launch.assumptions], launch.ranks or ranks
    script = _script(words, typed)
    return Script(
        script.path, script.arguments, module=script.module, command=script.command,
        environment=environment, ranks=ranks, assumptions=tuple(stated),
    )  # fmt: skip


def _launcher(words: list[str]) -> str | None:
    if words[:1] == ["-m"]:
        return names.LAUNCHER_MODULES.get(words[1]) if len(words) > 1 else None
    name = os.path.basename(words[0]) if words else ""
    return name if name in names.LAUNCHERS else None


def _script(words: list[str], typed: str) -> Script:
    """What is left when everything in front of it is taken away."""
    if not words:
        raise UsageError(f"`{typed}` names no script", hint=EXAMPLE)
    first, arguments = words[0], tuple(words[1:])
    if first == "-m":
        return read_module(words[1] if len(words) > 1 else "", tuple(words[2:]))
    if first.endswith((".py", ".ipynb")) or (os.path.isfile(first) and names.script_file(first) is None):
        if os.path.basename(first) in names.SHELLS or first.endswith(".sh"):
            raise _of_a_shell(typed)
        return Script(first, arguments)
    if os.path.basename(first) in names.SHELLS:
        raise _of_a_shell(typed)
    command = names.entry_point(os.path.basename(first))
    if command is not None:
        spec = names.module_spec(command.module)
        if spec is None or not spec.origin:
            raise UsageError(f"the command {first} is {command.value}, which is not there", hint=_here())
        return Script(spec.origin, arguments, module=command.value, command=command.name)
    file = names.script_file(first)
    if file is None:
        raise UsageError(f"there is no Python command {first!r} in memlens's environment", hint=_here())
    return Script(str(file), arguments)


def read_module(name: str, arguments: tuple[str, ...]) -> Script:
    """`-m name`: the module or package as a script."""
    if not name:
        raise UsageError("-m needs the name of a module", hint="memlens predict -m package.train")
    spec = names.module_spec(name)
    if spec is None or not spec.origin:
        where = f"looked for in {os.getcwd()} and in memlens's environment ({sys.prefix})"
        raise UsageError(f"there is no module {name!r} that could be run", hint=where)
    return Script(spec.origin, arguments, module=name)


def _another_python(word: str) -> list[Assumption]:
    """What is stated where the interpreter that was typed is not the one that runs."""
    place = shutil.which(word)
    if place is None or Path(place).parent == Path(sys.executable).parent:
        return []
    return [_elsewhere(word)]


def _elsewhere(word: str) -> Assumption:
    return Assumption(
        f"`{word}` is taken as {sys.executable}", "memlens sees the libraries of its own environment"
    )


def _of_a_shell(typed: str) -> UsageError:
    return UsageError(
        f"`{typed}` is a shell's script", hint=f"type the line that starts Python in it: {EXAMPLE}"
    )


def _here() -> str:
    return f"memlens runs what is installed next to it: {sys.executable} -m pip install ..."
