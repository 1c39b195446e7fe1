"""Why a script ended before it showed anything, in one line, and what to do about it."""

from __future__ import annotations

import re
from typing import NamedTuple

from memlens.errors import MemlensError
from memlens.scenarios.blame import last_line, place
from memlens.scenarios.sandbox import ForkedTooOften, Offline
from memlens.units import format_bytes

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE")
_FROM_HUB = re.compile(
    r"offline|couldn.t connect|local_files_only|LocalEntryNotFound|no network|snapshot folder|hf\.co|"
    r"huggingface\.co|urlopen error|Max retries|download=True|Dataset not found",
    re.IGNORECASE,
)
_NO_HOST_MEMORY = re.compile(r"can.t allocate memory|Cannot allocate memory|Unable to allocate")
DATA_HINT = "put it there, or pass --synthetic to feed made-up data of the same shape"


class Complaint(NamedTuple):
    """What went wrong, and the way out if there is one."""

    message: str
    hint: str | None = None
    missing_variable: str | None = None  # what torchrun would have set


def complain(error: BaseException, script: str, host_bytes: int | None, last_output: str) -> Complaint:
    """One line about an exception that ended `script`."""
    where, text = place(error), last_line(error)
    chain = list(_chain(error))
    if isinstance(error, MemlensError):
        return Complaint(error.message, error.hint)
    if isinstance(error, SystemExit):
        said = f": {last_output}" if last_output else ""
        return Complaint(f"{script} ended itself with exit code {error.code}{said}", "its own arguments follow --")
    if isinstance(error, MemoryError) or _NO_HOST_MEMORY.search(str(error)):
        limit = format_bytes(host_bytes) if host_bytes is not None else "what there is"
        return Complaint(
            f"{script} wanted more host memory than the limit of {limit} ({where})", "--host-memory sets the limit"
        )
    if any(isinstance(e, ForkedTooOften) for e in chain):
        return Complaint(f"{script} was stopped: {text} ({where})")
    if isinstance(error, KeyError) and error.args and error.args[0] in LAUNCHER:
        return Complaint(f"{script} needs {error.args[0]} ({where})", None, str(error.args[0]))
    if any(isinstance(e, Offline) for e in chain) or (isinstance(error, (OSError, RuntimeError, ValueError)) and _FROM_HUB.search(str(error))):
        return Complaint(
            f"{script} wants something that is not on this machine, and nothing is downloaded: {text} ({where})",
            "pass a local file or folder instead (weights do not matter: a config is enough), or --synthetic",
        )
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return Complaint(f"{script} needs {error.filename}, which is not there ({where})", DATA_HINT)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return Complaint(f"{script} needs {error.name}, which is not installed ({where})", f"pip install {error.name}")
    if isinstance(error, EOFError):
        return Complaint(f"{script} asks a question: {text} ({where})", "give the answer as an argument")
    return Complaint(f"{script} failed: {text} ({where})", "--show-output shows what it printed")


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
