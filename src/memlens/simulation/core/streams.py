"""Which stream an operator runs on: the thread's own in forward, and in backward that of its forward.

Autograd runs each node on the stream that was current when the node was made (torch/csrc/autograd/engine.cpp,
`evaluate_function`), whatever is current where `backward()` is called.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import Any

import torch


class _Here(threading.local):
    """Of one thread: its stream, the number of the first node made on it, and the node that chose it."""

    def __init__(self) -> None:
        self.stream = self.first = 0
        self.node: int | None = None


class Streams:
    """Streams by thread, and by the sequence numbers of the autograd nodes that were made on them."""

    def __init__(self) -> None:
        self._here = _Here()
        self._firsts: list[int] = []  # ranges of nodes made on other streams than the default, in order
        self._ranges: list[tuple[int, int]] = []  # (first node after the range, stream)

    def use(self, stream: int) -> None:
        """Operators of this thread run on `stream` from now on."""
        here, following = self._here, torch._C._autograd._get_sequence_nr()
        if here.stream and here.node is None and following > here.first:
            self._firsts.append(here.first)
            self._ranges.append((following, here.stream))
        node = torch._C._current_autograd_node()
        here.stream, here.first = stream, following
        here.node = None if node is None else node._sequence_nr()

    def current(self) -> int:
        """The stream of the operator that runs now."""
        here = self._here
        if not self._ranges and not here.stream:
            return 0
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return here.stream
        number = node._sequence_nr()
        return here.stream if number == here.node else self._of_node(number)

    def _of_node(self, number: int) -> int:
        place = bisect_right(self._firsts, number) - 1
        if place >= 0 and number < self._ranges[place][0]:
            return self._ranges[place][1]
        here = self._here
        return here.stream if here.stream and here.node is None and number >= here.first else 0
