"""A process and its children, added up: what a line profile with `include_children` reads.

No process is started to look, so nothing of ours is in the sum. Resident memory counts a page that parent and
child share once for each of them; PSS counts it once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from memlens.errors import UsageError
from memlens.measurement.host import own_process
from memlens.measurement.host.meters import Meter, Watcher
from memlens.measurement.host.readers import reader_for
from memlens.measurement.host.reading import Denied, Reader

SAMPLE_SECONDS = 0.01  # a look takes 0.1 ms and some 10 us a child: about 1 % of the time goes into samples
_OWN: dict[str, Callable[[], int | None]] = {
    "rss": own_process.own_rss_bytes,
    "pss": own_process.pss_bytes,
    "uss": own_process.uss_bytes,
}


class FamilyMeter:
    """This process, as `own` meters it, and all its living descendants. For one watcher.

    A peak is at least what is told: the highest sum of the samples, or this process's own peak with the least
    that its children held meanwhile.
    """

    exact = False

    def __init__(self, own: Meter) -> None:
        if own.name not in _OWN:
            raise UsageError(
                f"{own.name} counts this process alone, and include_children adds its children",
                hint=f"use the backend {', '.join(_OWN)}",
            )
        self.name, self.own = own.name, own
        self._lock = threading.Lock()
        self._members: Reader | None = None
        self._pid = self._least = self._most = 0

    def start(self) -> Watcher:
        watcher = self.own.start()
        self._begin()
        return watcher

    def stop(self, watcher: Watcher) -> None:
        self.own.stop(watcher)
        with self._lock:
            if self._members is not None:
                self._members.close()
            self._members = None  # the thread sees that it is over

    def look(self, watcher: Watcher) -> tuple[int, int]:
        if self._pid != os.getpid():  # forked: threads stay in the parent, and its children are not ours
            self._begin()
        own, own_high = self.own.look(watcher)
        children = self._children_bytes()
        now, least, most = own + children, min(self._least, children), self._most
        self._least, self._most = children, 0
        return now, max(now, most, own_high + least)

    def still(self) -> bool:
        """Nobody knows of children without a look."""
        return False

    def _begin(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()
        if self._members is not None:
            self._members.close()
        self._members = reader_for(self._pid)
        self._least, self._most = self._children_bytes(), 0
        threading.Thread(
            target=self._sample, args=[self._members], name="memlens-family", daemon=True
        ).start()

    def _sample(self, members: Reader) -> None:
        pause = threading.Event()
        while not pause.wait(SAMPLE_SECONDS) and self._members is members:
            children = self._children_bytes()
            self._least = min(self._least, children)
            self._most = max(self._most, (_OWN[self.name]() or 0) + children)

    def _children_bytes(self) -> int:
        """What the living descendants hold now; who is gone or not ours to read adds nothing."""
        with self._lock:  # a reader keeps what it saw, and the thread looks too
            if self._members is None:
                return 0
            return sum(
                size_in(self._members, pid, self.name) for pid, up in self._members.family().items() if up
            )


def size_in(members: Reader, pid: int, figure: str) -> int:
    """RSS, PSS or USS of one process; 0 where the system does not say."""
    if figure == "rss":
        reading = members.read(pid)
        return reading.rss_bytes if reading is not None else 0
    try:
        shares = members.shares(pid)
    except Denied:
        return 0
    return (shares and getattr(shares, f"{figure}_bytes")) or 0
