"""Whose line is it: the user's own, an installed library's, torch's, Python's, or memlens' own."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from enum import Enum, auto
from functools import lru_cache


class Whose(Enum):
    """Who wrote a file."""

    USER = auto()
    LIBRARY = auto()
    TORCH = auto()
    PYTHON = auto()  # the standard library, and code that has no file
    MEMLENS = auto()


# paths may come from a recording of another machine, so their shape has to do
_INSTALLED = re.compile(r"(site|dist)-packages[/\\]")
_TORCH = re.compile(r"(site|dist)-packages[/\\]torch[/\\]|^torch[/\\]|[/\\]torch[/\\]nn[/\\]")
_PYTHON = re.compile(r"[/\\]lib[/\\]python\d|^<(frozen|string|eval_with_key|__array_function__)")
_MEMLENS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})


@lru_cache(maxsize=4096)
def whose(file: str) -> Whose:
    """Who wrote `file`, by its path.

    >>> whose("/home/me/train.py"), whose("/opt/venv/lib/python3.12/site-packages/timm/models/vit.py")
    (<Whose.USER: 1>, <Whose.LIBRARY: 2>)
    """
    if file.startswith(_MEMLENS):
        return Whose.MEMLENS
    if _TORCH.search(file) or file.startswith(_torch_folder()):
        return Whose.TORCH
    if _INSTALLED.search(file):
        return Whose.LIBRARY
    if _PYTHON.search(file) or os.path.realpath(file).startswith(_STANDARD):
        return Whose.PYTHON
    return Whose.USER


def is_user_file(file: str) -> bool:
    """Whether a file is the user's own code.

    >>> is_user_file("train.py"), is_user_file("<frozen runpy>")
    (True, False)
    """
    return whose(file) is Whose.USER


def _torch_folder() -> tuple[str, ...]:
    """Where torch is, if it is loaded: also built from source, outside site-packages."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return (os.path.dirname(file) + os.sep,) if file else ()
