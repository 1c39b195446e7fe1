"""Linux' Landlock: a process gives up writing outside some folders, for itself and all it will ever start.

What Python-level redirection cannot reach (C++ writers, child processes) ends in "permission denied" here.
Constants: include/uapi/linux/landlock.h; system calls 444 to 446 on every architecture since Linux 5.13.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1  # flag of create_ruleset: tell the version instead
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38  # prctl
_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))  # devices, directories, files, sockets, pipes, links
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def write_only_beneath(folders: Iterable[str]) -> bool:
    """From now on this process writes beneath `folders` only. False where the kernel does not offer it."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    access = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE
    access |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Ruleset(access)
    ruleset = libc.syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    if ruleset < 0:
        return False
    try:
        for folder in folders:
            _allow(libc, ruleset, folder, access)
        return (
            libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
            and libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)) == 0
        )
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, folder: str, access: int) -> None:
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _Beneath(access, descriptor)
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(descriptor)
