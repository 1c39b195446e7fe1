"""Compare records as people have them: files, traces and predictions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from memlens.allocator import from_snapshot, verify
from memlens.errors import UsageError
from memlens.explanation import comparison as pure
from memlens.explanation.comparison import Comparison
from memlens.model import Trace
from memlens.records import load


def compare(a: Any, b: Any) -> Comparison:
    """What differs between two records, the biggest differences first.

    Each is a file that memlens reads (.memlens, a torch snapshot, mprofile_*.dat), a `Trace`, or what has one
    (a prediction, a simulation). Raises RecordError for a file of no known kind.

    Example:
        >>> from memlens.model import Alloc
        >>> compare(Trace("measured", [Alloc(1, 512)]), Trace("measured")).rows[0].delta_bytes
        -512
    """
    return pure.compare(as_trace(a), as_trace(b), (_name(a, "A"), _name(b, "B")))


def as_trace(record: Any) -> Trace:
    """The trace of a file, a trace, or anything that has one."""
    if isinstance(record, Trace):
        return record
    if isinstance(record, str | os.PathLike):
        return _true_sizes(load(Path(record)))
    trace = getattr(record, "trace", None)
    if isinstance(trace, Trace):
        return trace
    raise UsageError(
        f"cannot compare a {type(record).__name__}", hint="give a file's name, a Trace or a prediction"
    )


def _true_sizes(trace: Trace) -> Trace:
    """A snapshot says what was asked for; where a replay agrees with it, the size of every block is known."""
    if "allocator_settings" not in trace.metadata:
        return trace
    checked = verify(trace, from_snapshot(trace.metadata["allocator_settings"]))
    return checked.trace if checked.complete and checked.agrees else trace


def _name(record: Any, otherwise: str) -> str:
    return Path(record).name if isinstance(record, str | os.PathLike) else otherwise
