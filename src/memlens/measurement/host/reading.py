"""What is read of a process, and what a reader of an operating system has to answer."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Reading(NamedTuple):
    """One process's memory. `high_water_bytes` is the highest RSS of its life, where the system keeps it."""

    rss_bytes: int
    swap_bytes: int | None = None
    high_water_bytes: int | None = None


class Shares(NamedTuple):
    """PSS (shared pages divided by their users) and USS (pages that only this process has)."""

    pss_bytes: int | None
    uss_bytes: int | None


class Denied(Exception):
    """The system does not show this figure of this process; the message says why."""


class Reader(Protocol):
    """What a sampler needs of an operating system. A process that is gone reads as None, never as 0."""

    def family(self) -> dict[int, int | None]:
        """pid -> parent's pid of the program and all its living descendants; the program's parent is None."""

    def read(self, pid: int) -> Reading | None: ...

    def shares(self, pid: int) -> Shares | None:
        """Costly: the system walks the page tables. Raises Denied."""

    def name(self, pid: int) -> str: ...

    def close(self) -> None: ...
