"""From recorded stack frames to a `Site`: the user's own line first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from memlens.model import NOWHERE, Frame, Site
from memlens.model.site import is_cell
from memlens.model.user_code import is_user_file

# the dispatcher's entry of an operator: at::_ops::div_Tensor::call
_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
# what every operator calls for its result says nothing about it
_FACTORY = re.compile(r"(new_)?empty")
# the autograd node that ran: torch::autograd::generated::MulBackward0::apply, AccumulateGrad::apply
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\(")
_BACKWARD = "torch::autograd::Engine::"


class Stacks:
    """Sites by the identity of the recorded lists, which recordings share among thousands of events."""

    def __init__(self) -> None:
        self._sites: dict[int, Site] = {}
        self._frames: dict[int, Frame] = {}
        self._equal: dict[tuple[Frame, ...], Site] = {}

    def site(self, frames: Sequence[Any] | None) -> Site:
        """The site of a list of `{"name", "filename", "line"}`, innermost first."""
        if not frames:
            return NOWHERE
        site = self._sites.get(id(frames))
        if site is None:
            stack = tuple([self._frames.get(id(frame)) or self._frame(frame) for frame in frames])
            site = self._equal.get(stack)
            if site is None:
                site = self._equal[stack] = site_of(stack)
            self._sites[id(frames)] = site
        return site

    def _frame(self, frame: dict[str, Any]) -> Frame:
        name, file, line = frame["name"], frame["filename"], frame["line"]
        if not (isinstance(name, str) and isinstance(file, str) and isinstance(line, int)):
            raise TypeError("a stack frame is not name, filename and line")
        made = self._frames[id(frame)] = Frame(file, line, name)
        return made


def site_of(frames: tuple[Frame, ...]) -> Site:
    """The innermost line of the user's code; a library's where there is no other.

    >>> site_of((Frame("/x/site-packages/torch/nn/x.py", 9, "relu"), Frame("net.py", 3, "forward"))).where
    'net.py:3'
    >>> site_of((Frame("train.ipynb, cell 2", 3, "<module>"), Frame("runner.py", 9, "run"))).where
    'train.ipynb, cell 2, line 3'
    """
    python = [frame for frame in frames if _is_python(frame)]
    own = next((frame for frame in python if is_user_file(frame.file)), None)
    place = own or (python[0] if python else None)
    return Site(
        file=place.file if place else "",
        line=place.line if place else 0,
        function=place.function if place else "",
        operator=_operator(frames),
        backward=any(frame.function.startswith(_BACKWARD) for frame in frames),
        frames=frames,
    )


def _is_python(frame: Frame) -> bool:
    """C++ frames have no line, or the name of a C file."""
    if frame.line <= 0:
        return False
    return frame.file.endswith(".py") or frame.file.startswith("<") or is_cell(frame.file)


def _operator(frames: Iterable[Frame]) -> str:
    """The innermost operator or autograd node that was run, where C++ stacks were recorded."""
    factory = ""
    for frame in frames:
        match = _OPERATOR.search(frame.function) or _NODE.search(frame.function)
        if match and not _FACTORY.match(match[1]):
            return match[1]
        factory = factory or (match[1] if match else "")
    return factory
