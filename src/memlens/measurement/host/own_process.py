"""How much memory a process holds.

This process is read through one kept file descriptor on /proc/self/statm (about 1.3 us here, where a cached
psutil.Process takes 20-30 us); other processes, and other systems, through psutil. What cannot be read is
None, never 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil

from memlens.measurement.host.readers import reader_for
from memlens.measurement.host.reading import Denied, Shares

STATM = "/proc/self/statm"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


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


def pss_bytes(pid: int | None = None) -> int | None:
    """Resident bytes of a process (this one if None), shared pages divided by those who share them."""
    shares = shares_of(pid)
    return shares and shares.pss_bytes


def uss_bytes(pid: int | None = None) -> int | None:
    """Bytes that only this process holds, and that would be free without it."""
    shares = shares_of(pid)
    return shares and shares.uss_bytes


def shares_of(pid: int | None = None) -> Shares | None:
    """PSS and USS of a process; None when it is gone or not ours to read.

    >>> pss, uss = shares_of()
    >>> pss >= uss > 0
    True
    """
    pid = os.getpid() if pid is None else pid
    try:
        return reader_for(pid).shares(pid)
    except Denied:
        return None
