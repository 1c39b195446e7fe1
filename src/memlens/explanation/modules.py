"""Which module an allocation was made in: as a record says, else as the forward calls in its stack tell.

PyTorch's recordings know no modules. Their stacks show which `forward` ran inside which: the file and line of
each, and where that file lies at its recorded path here, the class it is written in. That is inferred: two
layers of one class look the same, and a file may have changed since.
"""

from __future__ import annotations

import ast
import os
import warnings
from functools import lru_cache
from typing import NamedTuple

from memlens.explanation.held import Held, held_by, largest_first
from memlens.model import Alloc, Breakdown, Frame, Site
from memlens.units import path_tail

UNKNOWN = "?"
_CALLS = ("_call_impl", "_slow_forward")  # of torch/nn/modules/module.py: a module's forward comes next
_LARGEST_SOURCE_BYTES = 2 << 20  # the largest file of transformers has a fifth of it


class ModuleUse(NamedTuple):
    """What one module holds; `inferred` where only its stacks say that it is this one."""

    module: str
    bytes: int
    allocations: int
    inferred: bool


def module_uses(held: Breakdown) -> list[ModuleUse]:
    """Every module with what it holds, largest first; `?` is what no stack tells. Sums to what is held."""
    names: dict[int, tuple[str, bool]] = {}  # sites are shared by many allocations, and stacks are long

    def module(alloc: Alloc) -> tuple[str, bool]:
        site = alloc.site
        return names.get(id(site)) or names.setdefault(id(site), module_of(site))

    sums = {(UNKNOWN, False): Held(held.baseline_bytes, 0)} if held.baseline_bytes else {}
    for key, use in held_by(held, module).items():
        before = sums.get(key, Held(0, 0))
        sums[key] = Held(before.bytes + use.bytes, before.allocations + use.allocations)
    return [ModuleUse(name, *use, inferred) for (name, inferred), use in largest_first(sums)]


def module_of(site: Site) -> tuple[str, bool]:
    """A module's name, and whether it is inferred.

    >>> module_of(Site(module="layers.3"))
    ('layers.3', False)
    >>> call = Frame("/x/torch/nn/modules/module.py", 1776, "_call_impl")
    >>> stack = (Frame("net/mlp.py", 7, "forward"), call, Frame("net/gpt.py", 20, "forward"), call)
    >>> module_of(Site(frames=stack))
    ('net/gpt.py:20 > net/mlp.py:forward', True)
    """
    if site.module is not None:
        return site.module or "(the model)", False
    calls = forwards(site.frames)
    if not calls:
        return UNKNOWN, False
    parts, before = [], ""
    for frame in calls:
        place = "forward" if frame is calls[-1] else str(frame.line)
        parts.append(
            _class_of(frame) or (place if frame.file == before else f"{path_tail(frame.file)}:{place}")
        )
        before = frame.file
    return " > ".join(parts), True


def forwards(frames: tuple[Frame, ...]) -> list[Frame]:
    """The forward methods that modules ran, outermost first.

    A forward counts where `Module._call_impl` called it, decorators between or not: an autograd function's
    `forward` is none.
    """
    calls, called = [], False
    for frame in reversed(frames):
        if frame.function in _CALLS and frame.file.replace("\\", "/").endswith("nn/modules/module.py"):
            called = True
        elif called and frame.function == "forward":
            calls.append(frame)
            called = False
    return calls


def _class_of(frame: Frame) -> str:
    """The class whose `forward` has this line, where its file is here and says so."""
    for first, last, name in _forwards_in(frame.file):
        if first <= frame.line <= last:
            return name
    return ""


@lru_cache(maxsize=256)
def _forwards_in(file: str) -> tuple[tuple[int, int, str], ...]:
    """(first line, last line, class) of every `forward` in a source file; nothing if it cannot be read.

    The name comes from a recording: whatever is no ordinary file of Python source is left alone.
    """
    try:
        # a relative path is one of another directory; a pipe would wait forever
        if not (os.path.isabs(file) and file.endswith(".py") and os.path.isfile(file)):
            return ()
        if os.path.getsize(file) > _LARGEST_SOURCE_BYTES:
            return ()
        with open(file, "rb") as source, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is odd in other people's code
            tree = ast.parse(source.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return tuple(
        (part.lineno, part.end_lineno or part.lineno, each.name)
        for each in classes
        for part in each.body
        if isinstance(part, ast.FunctionDef) and part.name == "forward"
    )
