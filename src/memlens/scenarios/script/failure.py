"""Why a script ended before it showed anything, in one line, and what to do about it."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from memlens.errors import MemlensError
from memlens.scenarios.sandbox.limits import MOST_FILE_BYTES, ForkedTooOften, Offline
from memlens.scenarios.script.installed import broken
from memlens.scenarios.shims.no_weights import USED_AS_DATA, is_about_data
from memlens.scenarios.user_frames import last_line, local, place
from memlens.units import format_bytes

NOTHING: Mapping[str, BaseException] = MappingProxyType({})
_FROM_HUB = re.compile(
    r"offline|couldn.t connect|local_files_only|LocalEntryNotFound|no network|snapshot folder|hf\.co|"
    r"huggingface\.co|urlopen error|Max retries|download=True|Dataset not found",
    re.IGNORECASE,
)
_NO_HOST_MEMORY = re.compile(r"can.t allocate memory|Cannot allocate memory|Unable to allocate")
# what a library calls the thing that it wants to fetch
_WANTED = ("pretrained_model_name_or_path", "path_or_repo_id", "repo_id", "repo_or_dir", "url", "path")
_FOLDER = "pass a folder with its config.json instead: weights do not matter"
# by a function in the traceback: what to pass instead of a download
_INSTEAD = {
    "load_dataset": "pass --synthetic, or a few rows: load_dataset('json', data_files='few.jsonl')",
    "hf_hub_download": _FOLDER,
    "load": "make the model from code that is on this machine; weights do not matter",
}
DOWNLOAD_HINT = "put the file there first; datasets of torchvision are made up with --synthetic"
_ROWS = "put it there, or a few rows with the same columns"
# by the ending of a file that is not there: what will do
_WILL_DO = {
    ".npy .npz": "put it there, or a small one whose arrays have the same shapes",
    ".csv .tsv .parquet .feather .json .jsonl .txt .xlsx": _ROWS,
    ".pt .pth .ckpt .safetensors": "put it there, or --synthetic, which takes missing weights as random",
    ".bin .dat": "put it there, or pass --synthetic to feed zeros",
}
DATA_HINT = "put it there, or a small one of the same shape; --synthetic makes up datasets of torchvision"


class Complaint(NamedTuple):
    """What went wrong, and the way out if there is one."""

    message: str
    hint: str | None = None
    missing_variable: str | None = None  # what torchrun would have set
    is_missing_data: bool = False  # a file or a download


def complain(
    error: BaseException, script: str, host_bytes: int | None, last_output: str, synthetic: bool = False,
    earlier: Mapping[str, BaseException] = NOTHING,
) -> Complaint:  # fmt: skip
    """One line about an exception that ended `script`. With `synthetic`, that is no way out any more.

    `earlier`: the errors of libraries that could not be imported before the script began.
    """
    complaint = _complaint(error, script, host_bytes, last_output, earlier)
    if synthetic and "--synthetic" in (complaint.hint or ""):
        return complaint._replace(hint="put it there: --synthetic does not know how it looks")
    return complaint


def _complaint(
    error: BaseException, script: str, host_bytes: int | None, last_output: str,
    earlier: Mapping[str, BaseException],
) -> Complaint:  # fmt: skip
    where, text = place(error), last_line(error)
    error = USED_AS_DATA if is_about_data(error) else error
    if isinstance(error, MemlensError):
        return Complaint(error.message, error.hint)
    if isinstance(error, SystemExit):
        last = f": {last_output}" if last_output else ""
        return Complaint(
            f"{script} ended itself with exit code {error.code}{last}",
            "its own arguments follow --; memlens's own options stand before a command line",
        )
    if isinstance(error, MemoryError) or _NO_HOST_MEMORY.search(str(error)):
        limit = format_bytes(host_bytes) if host_bytes is not None else "what there is"
        message = f"{script} wanted more host memory than the limit of {limit} ({where})"
        return Complaint(message, "--host-memory sets the limit")
    chain = _chain(error)
    forked = next((link for link in chain if isinstance(link, ForkedTooOften)), None)
    if forked is not None:
        return Complaint(f"{script} was stopped: {forked} ({where})")
    if any(isinstance(link, Offline) or _is_about_a_download(link) for link in chain):
        return _download(error, script, f"{text} ({where})")
    wrong = broken(error, script, earlier)
    if wrong is not None:
        return Complaint(wrong.message, wrong.hint)
    return _missing(error, script, where) or Complaint(
        f"{script} failed: {text} ({where})", "--show-output shows what it printed"
    )


def _missing(error: BaseException, script: str, where: str) -> Complaint | None:
    """The line about a file, a library or an answer that is not there."""
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        limit = format_bytes(MOST_FILE_BYTES)
        return Complaint(f"{script} wrote a file of more than {limit} ({where})", "--allow-writes lets it")
    if isinstance(error, FileNotFoundError):
        name = str(error.filename or str(error).rpartition(": ")[2])
        suffix = os.path.splitext(name)[1].lower()
        hint = next((hint for kinds, hint in _WILL_DO.items() if suffix in kinds.split()), DATA_HINT)
        message = f"{script} needs {name}, which is not there ({where})"
        return Complaint(message, hint, is_missing_data=True)
    if isinstance(error, EOFError):
        message = f"{script} asks a question: {last_line(error)} ({where})"
        return Complaint(message, "give the answer as an argument")
    return None


def _download(error: BaseException, script: str, text: str) -> Complaint:
    """The line about something that a library would fetch, by its name where the traceback has it."""
    wanted = local(error, *_WANTED)
    functions = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    hint = next((_INSTEAD[name] for name in _INSTEAD if name in functions), DOWNLOAD_HINT)
    if "from_pretrained" in functions:
        tokenizer = any("tokeniz" in frame.filename for frame in traceback.extract_tb(error.__traceback__))
        hint = _FOLDER
        if tokenizer:
            hint = "pass --synthetic for a made-up tokenizer, or a folder with its tokenizer.json"
    named = f"{wanted}, which" if wanted else "what"
    message = f"{script} wants {named} is not on this machine, and nothing is downloaded: {text}"
    return Complaint(message, hint, is_missing_data=True)


def _is_about_a_download(error: BaseException) -> bool:
    return isinstance(error, (OSError, RuntimeError, ValueError)) and bool(_FROM_HUB.search(str(error)))


def _chain(error: BaseException | None) -> list[BaseException]:
    errors: list[BaseException] = []
    while error is not None and error not in errors:
        errors.append(error)
        error = error.__cause__ or error.__context__
    return errors
