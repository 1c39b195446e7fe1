"""Files in and out: every format is a row here; `load` looks at a file's first bytes and picks."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memlens.errors import RecordError

if TYPE_CHECKING:
    from memlens.model import Trace


class Format(NamedTuple):
    """A kind of file. Its module is loaded when a file is: most commands need one of them, or none.

    `sniff(first bytes)` of the module knows the file, `load(path)` reads it or raises RecordError.
    """

    name: str
    module: str


FORMATS: list[Format] = [
    Format("memlens record", "native"),
    Format("mprof record", "mprofile"),
    Format("torch CUDA memory snapshot", "torch_snapshot"),
    Format("memray capture", "memray_capture"),
]
_SNIFFED_BYTES = 4096


def load(path: str | Path) -> Trace:
    """Read a record of any known format.

    Raises RecordError for a file that is none of them, or is truncated, damaged or hostile.
    """
    path = Path(path)
    known, head = _sniff(path)
    if known is not None:
        trace: Trace = import_module(f"memlens.records.{known.module}").load(path)
        sound = import_module("memlens.records.validate")  # msgspec takes its time to load
        try:
            sound.check(trace)
        except ValueError as error:  # msgspec's are
            raise RecordError(f"{path} is damaged: {error}") from error
        return trace
    if not head:
        raise RecordError(f"{path} is empty")
    names = ", ".join(known.name for known in FORMATS)
    raise RecordError(f"{path} is of no format that memlens reads ({names}); it begins with {head[:8]!r}")


def kind_of(path: str | Path) -> Format | None:
    """The format of a file by its first bytes; None if it is no record. RecordError if it cannot be read."""
    return _sniff(Path(path))[0]


def _sniff(path: Path) -> tuple[Format | None, bytes]:
    try:
        with open(path, "rb") as file:
            head = file.read(_SNIFFED_BYTES)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    for known in FORMATS:
        if import_module(f"memlens.records.{known.module}").sniff(head):
            return known, head
    return None, head
