"""Why a script ended before it showed anything, in one line, and what to do about it."""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from memlens.errors import MemlensError
from memlens.scenarios.blame import last_line, place
from memlens.scenarios.sandbox import MOST_FILE_BYTES, ForkedTooOften, Offline
from memlens.units import format_bytes

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE")
_FROM_HUB = re.compile(
    r"offline|couldn.t connect|local_files_only|LocalEntryNotFound|no network|snapshot folder|hf\.co|"
    r"huggingface\.co|urlopen error|Max retries|download=True|Dataset not found",
    re.IGNORECASE,
)
_NO_HOST_MEMORY = re.compile(r"can.t allocate memory|Cannot allocate memory|Unable to allocate")
DOWNLOAD_HINT = (
    "pass a local file or folder instead (weights do not matter, a config is enough), or --synthetic"
)
DATA_HINT = "put it there, or pass --synthetic to feed made-up data of the same shape"


class Complaint(NamedTuple):
    """What went wrong, and the way out if there is one."""

    message: str
    hint: str | None = None
    missing_variable: str | None = None  # what torchrun would have set


def complain(error: BaseException, script: str, host_bytes: int | None, last_output: str) -> Complaint:
    """One line about an exception that ended `script`."""
    where, text = place(error), last_line(error)
    if isinstance(error, MemlensError):
        return Complaint(error.message, error.hint)
    if isinstance(error, SystemExit):
        said = f": {last_output}" if last_output else ""
        return Complaint(
            f"{script} ended itself with exit code {error.code}{said}", "its own arguments follow --"
        )
    if isinstance(error, MemoryError) or _NO_HOST_MEMORY.search(str(error)):
        limit = format_bytes(host_bytes) if host_bytes is not None else "what there is"
        message = f"{script} wanted more host memory than the limit of {limit} ({where})"
        return Complaint(message, "--host-memory sets the limit")
    chain = _chain(error)
    forked = next((link for link in chain if isinstance(link, ForkedTooOften)), None)
    if forked is not None:
        return Complaint(f"{script} was stopped: {forked} ({where})")
    if any(isinstance(link, Offline) or _wants_download(link) for link in chain):
        message = f"{script} wants what is not on this machine, and nothing is downloaded: {text} ({where})"
        return Complaint(message, DOWNLOAD_HINT)
    if isinstance(error, KeyError) and error.args and error.args[0] in LAUNCHER:
        return Complaint(f"{script} needs {error.args[0]} ({where})", None, str(error.args[0]))
    return _missing(error, script, where) or Complaint(
        f"{script} failed: {text} ({where})", "--show-output shows what it printed"
    )


def _missing(error: BaseException, script: str, where: str) -> Complaint | None:
    """The line about a file, a library or an answer that is not there."""
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        limit = format_bytes(MOST_FILE_BYTES)
        return Complaint(f"{script} wrote a file of more than {limit} ({where})", "--allow-writes lets it")
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return Complaint(f"{script} needs {error.filename}, which is not there ({where})", DATA_HINT)
    if isinstance(error, ModuleNotFoundError) and error.name:
        message = f"{script} needs {error.name}, which is not installed ({where})"
        return Complaint(message, f"pip install {error.name}")
    if isinstance(error, EOFError):
        message = f"{script} asks a question: {last_line(error)} ({where})"
        return Complaint(message, "give the answer as an argument")
    return None


def _wants_download(error: BaseException) -> bool:
    return isinstance(error, (OSError, RuntimeError, ValueError)) and bool(_FROM_HUB.search(str(error)))


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
