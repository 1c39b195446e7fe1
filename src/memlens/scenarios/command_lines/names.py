"""What the first word of a command line names: an interpreter, a launcher, a command of the environment."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

INTERPRETER = re.compile(r"(python|pypy)[\d.]*(\.exe)?\Z", re.IGNORECASE)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
# what runs the rest of the line in an environment of its own
WRAPPERS = {("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipenv", "run"), ("hatch", "run")}
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
# python -m of these is a launcher too
LAUNCHER_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
SHELLS = ("sh", "bash", "zsh", "fish", "dash")


def is_command(word: str) -> bool:
    """Whether a command line begins here, rather than a target: all that follows is the command's own.

    >>> is_command("python3"), is_command("torchrun"), is_command("train.py"), is_command("net.py:Net")
    (True, True, False, False)
    """
    name = os.path.basename(word)
    if ASSIGNMENT.match(word):
        return True
    if word.endswith((".py", ".ipynb")) or ":" in word:
        return False
    if INTERPRETER.match(name) or name in LAUNCHERS:
        return True
    if name in SHELLS or name in {first for first, _ in WRAPPERS}:
        return True
    return entry_point(name) is not None or script_file(word) is not None


def entry_point(name: str) -> EntryPoint | None:
    """The console script of that name which an installed package declares."""
    return next(iter(entry_points(group="console_scripts", name=name)), None)


def script_file(word: str) -> Path | None:
    """A file without .py that Python runs: named by its path, or a command of this environment."""
    place = word if os.path.dirname(word) else shutil.which(word, path=os.path.dirname(sys.executable))
    if place is None or not os.path.isfile(place):
        return None
    with open(place, "rb") as file:
        line = file.readline(200)
    return Path(place) if line.startswith(b"#!") and b"python" in line else None


def module_spec(name: str) -> ModuleSpec | None:
    """Where `python -m name` would find its code, without importing the packages it is in."""
    places: list[str] | None = [os.getcwd(), *sys.path]
    spec = None
    parts = name.split(".")
    for number in range(len(parts)):
        spec = _spec(".".join(parts[: number + 1]), places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    if spec is not None and spec.submodule_search_locations is not None:
        return _spec(f"{name}.__main__", places)
    return spec


def _spec(name: str, places: list[str] | None) -> ModuleSpec | None:
    finders = [getattr(finder, "find_spec", None) for finder in sys.meta_path]
    return next((spec for find in finders if find and (spec := find(name, places))), None)
