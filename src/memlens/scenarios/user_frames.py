"""Whose fault it was: the user's last line in a traceback, and the module that refused a shape."""

from __future__ import annotations

import traceback
from types import FrameType, TracebackType

import torch
from torch import nn

from memlens.model.site import place as line_of
from memlens.model.user_code import is_user_file
from memlens.units import short_path

MOST_CHARACTERS = 300  # of an error's text


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    frames: list[tuple[FrameType, int]] = []
    link: TracebackType | None = error.__traceback__
    while link is not None:
        frames.append((link.tb_frame, link.tb_lineno))
        link = link.tb_next
    return frames


def last_line(error: BaseException) -> str:
    """`ValueError: depth must be positive`: the first line of what Python itself would print last."""
    lines = [line.strip() for line in traceback.format_exception_only(error)[-1].splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "..."


def local(error: BaseException, *names: str) -> str:
    """The text that a frame of `error`'s traceback has under one of these names, outermost frame first."""
    for frame, _ in _frames(error):
        for name in names:
            value = frame.f_locals.get(name)
            if isinstance(value, str) and value:
                return value
    return ""


def place(error: BaseException) -> str:
    """`net.py:12 in forward`: the innermost frame of the user's code, else the innermost one at all."""
    if isinstance(error, SyntaxError) and error.filename:
        return line_of(short_path(error.filename), error.lineno or 0)
    frames = _frames(error)
    users = [(f, line) for f, line in frames if is_user_file(f.f_code.co_filename)]
    if not frames:
        return "an unknown place"
    frame, line = (users or frames)[-1]
    return f"{line_of(short_path(frame.f_code.co_filename), line)} in {frame.f_code.co_name}"


def whereabouts(frame: FrameType | None) -> str:
    """` (at net.py:12 in forward)`: where the user's code is that runs, from its innermost frame outwards."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ""
    where = line_of(short_path(frame.f_code.co_filename), frame.f_lineno)
    return f" (at {where} in {frame.f_code.co_name})"


def refused(error: BaseException, model: nn.Module) -> tuple[str, nn.Module, list[torch.Tensor]] | None:
    """The innermost module that was running when `error` was raised: its path, itself, and its inputs."""
    paths = {id(module): name for name, module in model.named_modules()}
    for frame, _ in reversed(_frames(error)):
        module, code = frame.f_locals.get("self"), frame.f_code
        if code.co_name != "forward" or not isinstance(module, nn.Module) or id(module) not in paths:
            continue
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals.get(name) for name in names]
        return paths[id(module)], module, [v for v in values if isinstance(v, torch.Tensor)]
    return None


def shape_text(shape: torch.Size | tuple[int, ...]) -> str:
    """`32x3x224x224`; `()` for a single number.

    >>> shape_text((32, 3, 224, 224))
    '32x3x224x224'
    """
    return "x".join(str(n) for n in shape) or "()"


def describe_refusal(error: BaseException, model: nn.Module) -> str:
    """One line about a forward that failed: the layer, the shape it got, the shape of its weight."""
    refusal = refused(error, model)
    if refusal is None:
        return f"{last_line(error)} ({place(error)})"
    path, module, inputs = refusal
    kind = type(module).__name__
    who = f"{path} ({kind})" if path else kind
    weight = getattr(module, "weight", None)
    own = f", whose weight is {shape_text(weight.shape)}," if isinstance(weight, torch.Tensor) else ""
    got = f" on an input of {' and '.join(shape_text(t.shape) for t in inputs)}" if inputs else ""
    return f"{who}{own} failed{got}: {last_line(error)} ({place(error)})"
