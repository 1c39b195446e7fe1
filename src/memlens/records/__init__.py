"""Files in and out: every format is a row here; `load` looks at a file's first bytes and picks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from memlens.errors import RecordError
from memlens.model import Trace
from memlens.records import memray_capture, mprofile, native, torch_snapshot


class Format(NamedTuple):
    """A kind of file: `sniff(first bytes)` knows it, `load(path)` reads it or raises RecordError."""

    name: str
    sniff: Callable[[bytes], bool]
    load: Callable[[Path], Trace]


FORMATS: list[Format] = [
    Format("memlens record", native.sniff, native.load),
    Format("mprof record", mprofile.sniff, mprofile.load),
    Format("torch CUDA memory snapshot", torch_snapshot.sniff, torch_snapshot.load),
    Format("memray capture", memray_capture.sniff, memray_capture.load),
]
_SNIFFED_BYTES = 4096


def load(path: str | Path) -> Trace:
    """Read a record of any known format.

    Raises RecordError for a file that is none of them, or is truncated, damaged or hostile.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            head = file.read(_SNIFFED_BYTES)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    for known in FORMATS:
        if known.sniff(head):
            return known.load(path)
    names = ", ".join(known.name for known in FORMATS)
    raise RecordError(f"{path} is of no format that memlens reads ({names}); it begins with {head[:8]!r}")
