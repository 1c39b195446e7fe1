"""The functions that run now, and their variables, read without leaving anything behind."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from memlens.model.user_code import Whose, whose


def running(own: bool = True) -> Iterator[FrameType]:
    """The frames of all threads, innermost first; without `own` those of memlens itself are left out."""
    threads = list(sys._current_frames().values())
    while threads:
        inner: FrameType | None = threads.pop()  # our own among them: a variable of ours that stayed would
        while inner is not None:  # be a cycle, and hold every frame behind it until a collection
            if own or whose(inner.f_code.co_filename) is not Whose.MEMLENS:
                yield inner
            inner = inner.f_back


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A frame's variables, in a dict of our own.

    Until Python 3.12 a frame keeps the dict that `f_locals` made, and so every value in it, until it ends:
    it is emptied again, unless somebody else has it too (`d = locals()`).
    """
    made = frame.f_locals
    copy = dict(made)
    is_function = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    # the frame, our variable, and the call's argument refer to it; nobody else
    if sys.version_info < (3, 13) and is_function and sys.getrefcount(made) <= 3:
        made.clear()
    return copy
