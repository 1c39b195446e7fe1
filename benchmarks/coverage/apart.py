"""Runs a function in a process group of its own, so that a row that hangs or crashes is only a row."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from benchmarks.coverage.seen import one_line


def run_apart(function: Callable[[], Any], seconds: float) -> tuple[Any, str]:
    """What `function` returns (through JSON), or None and why there is nothing: a signal, the time limit."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(function, writer)
    os.close(writer)
    data, in_time = _read(reader, time.monotonic() + seconds)
    os.close(reader)
    if not in_time:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # what it may have started and left
    if data.endswith(b"\n"):
        answer = json.loads(data)
        return answer.get("value"), answer.get("error", "")
    if not in_time:
        return None, f"did not end within {seconds:g} s"
    ended = os.waitstatus_to_exitcode(status)
    return None, f"died of {signal.Signals(-ended).name}" if ended < 0 else f"ended with status {ended}"


def _child(function: Callable[[], Any], writer: int) -> None:
    os.setsid()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)  # torch's profiler talks there
    try:
        answer = {"value": function()}
    except BaseException as error:
        answer = {"error": one_line(error)}
    with open(writer, "wb") as pipe:
        pipe.write(json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    data = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return data, False
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return data, True
        data += chunk
