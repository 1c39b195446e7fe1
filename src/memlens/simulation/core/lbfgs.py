"""L-BFGS keeps what values decide: simulated as the run that keeps the most, with the range down to none.

Every iteration adds a pair of vectors to its history, as long as the curvature is positive, and it goes on
until the gradient or the loss hardly changes. A run that converges early keeps fewer pairs, never more.
"""

from __future__ import annotations

import itertools
import linecache
import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from memlens.model import Assumption
from memlens.model.user_code import is_user_file

_FILE = "torch/optim/lbfgs.py"
_TRUE = ("if ys > 1e-10", "if abs(gtd_new) <= -c2 * gtd")  # a pair is kept; the line search ends
_losses = itertools.count(1, -1)  # every loss is lower than the one before


def decided(dtype: torch.dtype) -> Any | None:
    """What a value reads as that L-BFGS itself asks for; None where something else asks."""
    frame = _asking()
    if frame is None:
        return None
    if dtype is torch.bool:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        return line.startswith(_TRUE)
    return next(_losses)


def _asking() -> FrameType | None:
    """The frame of L-BFGS below which no code of the user runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.replace("\\", "/").endswith(_FILE):
            return frame
        if is_user_file(file):
            return None
        frame = frame.f_back
    return None


def history_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the pairs that an L-BFGS holds; 0 for another optimizer."""
    if not isinstance(optimizer, torch.optim.LBFGS):
        return 0
    vectors: list[Tensor] = []
    for state in optimizer.state.values():
        vectors += [*state.get("old_dirs", ()), *state.get("old_stps", ())]
    return sum(vector.numel() * vector.element_size() for vector in vectors)


def assumption(held_bytes: int) -> Assumption:
    return Assumption(
        "L-BFGS runs all its iterations, and each adds a pair of vectors to its history",
        "values decide when it stops and which pairs it keeps; a run that converges early holds less",
        low_bytes=-held_bytes,
    )
