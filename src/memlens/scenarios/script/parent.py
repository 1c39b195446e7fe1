"""The process that a script runs in, seen from outside: started, waited for, ended; what it left is read."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

import memlens
from memlens.scenarios.sandbox.terminal import keyboard
from memlens.scenarios.script.job import Job, write_job
from memlens.units import MIB, format_bytes

POLL_SECONDS = 0.1
MOST_OUTPUT_BYTES = 64 * MIB  # of what the script prints, only the last so many are kept
LEAST_FREE_BYTES = 256 * MIB  # must stay free on the disk that holds the scratch folder
MOST_CHARACTERS = 200  # of a line that it printed, in ours
# modules of the folder that memlens is called from are not those of Python
_START = (
    "import sys\nif not sys.flags.safe_path: del sys.path[0]\n"
    "from memlens.scenarios.script.child import main\nmain()"
)
# what a batch system tells its own job, which the script would take for its own
_OF_A_CLUSTER = ("SLURM_", "PMI_", "OMPI_", "PBS_")


class Ending(NamedTuple):
    """How the process ended: its exit code, negative for a signal, and why we ended it if we did."""

    code: int
    ended: str  # "", "time" or "disk"


def execute(job: Job, scratch: str, show_output: bool, progress: Callable[[str], None]) -> Ending:
    """Start the child in `scratch` and wait for it. No process that it started outlives it."""
    write_job(scratch, job)
    source = str(Path(memlens.__file__).parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_CLUSTER)}
    environment = {**inherited, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", _START, scratch]
    # the output is appended to: it is cut while it grows
    with keyboard() as typed, open(os.path.join(scratch, "output"), "ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=typed, stdout=output, stderr=output, start_new_session=True
        )
        try:
            ended = _wait(process, scratch, job.max_seconds + job.grace_seconds, progress)
        finally:
            _end(process)
    if show_output:
        with open(os.path.join(scratch, "output"), "rb") as printed:
            shutil.copyfileobj(printed, sys.stderr.buffer)
    return Ending(process.returncode, ended)


def _wait(
    process: subprocess.Popen[bytes], scratch: str, seconds: float, progress: Callable[[str], None]
) -> str:
    """Until it ends, `seconds` after it began to run the script, or until it has filled the disk."""
    deadline, shown = None, ""
    while process.poll() is None:
        with contextlib.suppress(OSError):
            text = Path(scratch, "progress").read_text(encoding="utf-8")
            if text and text != shown:
                shown = text
                progress(text)
                if deadline is None and not text.startswith("importing"):
                    deadline = time.monotonic() + seconds
        if deadline is not None and time.monotonic() > deadline:
            return "time"
        if shutil.disk_usage(scratch).free < LEAST_FREE_BYTES:
            return "disk"
        if os.path.getsize(os.path.join(scratch, "output")) > MOST_OUTPUT_BYTES:
            os.truncate(os.path.join(scratch, "output"), 0)
        time.sleep(POLL_SECONDS)
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left: the inside, its descendants (it adopts orphans), and its session."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def vanished(name: str, seconds: float, ending: Ending, scratch: str) -> tuple[str, str | None]:
    """The line for a process that ended without a word, and a hint."""
    if ending.ended == "time":
        return f"{name} did not stop within {seconds:g} seconds and was killed", None
    if ending.ended == "disk":
        left = format_bytes(LEAST_FREE_BYTES)
        return f"{name} wrote until less than {left} of the disk were free, and was killed", None
    line = last_words(os.path.join(scratch, "output"))
    last = f": {line}" if line else ""
    if ending.code == -signal.SIGKILL:
        return f"{name} was killed, by itself or by a system without memory{last}", "--host-memory limits it"
    if ending.code < 0:
        return f"{name} was ended by {signal.Signals(-ending.code).name}{last}", None
    return (
        f"{name} ended its process with exit code {ending.code} before anything could be learned{last}",
        None,
    )


def last_words(path: str) -> str:
    """The last line of a file of output, shortened."""
    with open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - (1 << 16), 0))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return last if len(last) <= MOST_CHARACTERS else last[:MOST_CHARACTERS] + "..."
