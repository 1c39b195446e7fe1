"""Loops over data loaders in a notebook, ended early: what follows them runs, and functions return.

The first round in which optimizers step ends when they have stepped often enough, each later one after a
batch. A round without steps, an evaluation, goes through all of its batches once, and is then cut short too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

MOST_UPDATES = 30  # steps beyond those asked for, one for each later epoch; then the cell is stopped


class Rounds:
    """The rounds of a cell. `is_enough` says whether optimizers have stepped often enough in it."""

    def __init__(self, wanted: int, is_enough: Callable[[], bool]) -> None:
        self.wanted, self.is_enough = wanted, is_enough
        self.updates = 0
        self.were_cut = False
        self._trained = False
        self._open: weakref.WeakSet[Round] = weakref.WeakSet()
        self._whole: weakref.WeakSet[Any] = weakref.WeakSet()  # loaders that were gone through

    def begin_cell(self) -> None:
        self.updates, self.were_cut, self._trained = 0, False, False
        self._open.clear()
        self._whole.clear()

    def stepped(self) -> None:
        """An optimizer has stepped."""
        self.updates += 1
        for each in list(self._open):
            each.updates += 1
            self._trained = True

    @property
    def will_end(self) -> bool:
        """Whether the loop ends by itself: it goes over a loader, and not through too many epochs."""
        return self._trained and self.updates < self.wanted + MOST_UPDATES

    def over(self, iterate: Callable[[Any], Any]) -> Callable[[Any], Round]:
        """`DataLoader.__iter__`, whose rounds end early."""
        return lambda loader: Round(self, loader, iterate(loader))

    def ends(self, each: Round) -> bool:
        """Whether a round is cut here."""
        if not self.is_enough():
            return False
        if each.updates or (each.loader in self._whole and each.batches >= self.wanted):
            self.were_cut = True
            return True
        return False

    def begun(self, each: Round) -> None:
        self._open.add(each)

    def ended(self, each: Round, whole: bool) -> None:
        self._open.discard(each)
        if whole and not each.updates:
            self._whole.add(each.loader)


class Round:
    """Once through a loader."""

    def __init__(self, rounds: Rounds, loader: Any, iterator: Iterator[Any]) -> None:
        self.rounds, self.loader, self.iterator = rounds, loader, iterator
        self.updates = self.batches = 0

    def __iter__(self) -> Round:
        return self

    def __len__(self) -> int:
        return len(self.iterator)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        if self.rounds.ends(self):
            self.rounds.ended(self, whole=False)
            raise StopIteration
        self.rounds.begun(self)
        self.batches += 1
        try:
            return next(self.iterator)  # kept nowhere: it may be on the device
        except StopIteration:
            self.rounds.ended(self, whole=True)
            raise
