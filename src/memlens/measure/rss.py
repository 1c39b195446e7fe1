"""How much memory a process holds.

This process is read through one kept file descriptor on /proc/self/statm (about 1.3 us here, where a cached
psutil.Process takes 20-30 us); other processes, and other systems, through psutil. What cannot be read is
None, never 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import psutil

STATM = "/proc/self/statm"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Shares(NamedTuple):
    """What a process holds: with everything shared (RSS), its share (PSS), and what it alone holds (USS)."""

    rss_bytes: int | None
    pss_bytes: int | None
    uss_bytes: int | None


def kept_reader(path: str) -> Callable[[int], bytes]:
    """A function that reads the first bytes of `path` through a descriptor that stays open.

    /proc/self is resolved when it is opened, so a forked child, which would read its parent, opens it anew;
    so does a program that closed every descriptor, as daemons do.
    """
    descriptor = -1

    def reopen() -> None:
        nonlocal descriptor
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(size: int) -> bytes:
        try:
            return os.pread(descriptor, size, 0)
        except OSError:  # closed, or the number now belongs to a pipe: not ours to close
            reopen()
            return os.pread(descriptor, size, 0)

    reopen()
    os.register_at_fork(after_in_child=reopen)
    return read


def statm_reader() -> Callable[[], int]:
    """Reads this process's resident bytes from /proc/self/statm; raises OSError where there is none."""
    read, page = kept_reader(STATM), PAGE_BYTES

    def rss() -> int:
        return int(read(64).split(None, 2)[1]) * page

    rss()
    return rss


def psutil_reader() -> Callable[[], int]:
    """Reads this process's resident bytes through psutil, for systems without /proc."""
    here: dict[int, psutil.Process] = {}

    def rss() -> int:
        pid = os.getpid()
        process = here.get(pid) or here.setdefault(pid, psutil.Process(pid))
        return int(process.memory_info().rss)

    return rss


def own_reader() -> Callable[[], int]:
    """The fastest way to read this process's resident bytes on this system."""
    try:
        return statm_reader()
    except (OSError, AttributeError, IndexError, ValueError):
        return psutil_reader()


own_rss_bytes: Callable[[], int] = own_reader()


def rss_bytes(pid: int) -> int | None:
    """Resident bytes of process `pid`; None when it is gone or not ours to read."""
    if pid == os.getpid():
        return own_rss_bytes()
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError):
        return None


def shares(pid: int | None = None) -> Shares:
    """RSS, PSS and USS of a process (this one if None).

    >>> rss, pss, uss = shares()
    >>> rss >= pss >= uss > 0
    True
    """
    try:
        with open(f"/proc/{'self' if pid is None else pid}/smaps_rollup", "rb") as file:
            return parse_rollup(file.read())
    except OSError:
        pass
    try:
        full = psutil.Process(pid).memory_full_info()
    except (psutil.Error, OSError):
        return Shares(rss_bytes(pid or os.getpid()), None, None)
    return Shares(full.rss, getattr(full, "pss", None), getattr(full, "uss", None))


def parse_rollup(text: bytes) -> Shares:
    """The three shares from the text of a `smaps_rollup` file, whose figures are in KiB."""
    figures = dict.fromkeys((b"Rss", b"Pss", b"Private_Clean", b"Private_Dirty", b"Private_Hugetlb"), 0)
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        if name in figures:
            figures[name] = int(rest.split()[0]) * 1024
    own = sum(size for name, size in figures.items() if name.startswith(b"Private"))
    return Shares(figures[b"Rss"], figures[b"Pss"], own)
