"""memlens' own record, `.memlens`: written as it grows, readable after `kill -9`.

The file is an 8-byte magic, a version (4 bytes), then frames: length and CRC-32 (4 bytes each, little-endian)
and a msgpack list of records. A record is an array whose first item is its tag; fields are only ever added
at the end, so that an older file fills them with defaults. A frame is written with one `write`, so that a
killed writer can tear the last frame only: it is dropped, and the trace says so in its assumptions.

>>> import tempfile, pathlib
>>> from memlens.model import Alloc, Trace
>>> path = pathlib.Path(tempfile.mkdtemp()) / "run.memlens"
>>> save(Trace("measured", [Alloc(1, 512)]), path)
>>> load(path).events
[Alloc(id=1, bytes=512, category=<Category.UNKNOWN: 'unknown'>, ...)]
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from memlens.errors import RecordError
from memlens.messages import printable
from memlens.model import NOWHERE, Assumption, Site, Trace
from memlens.records import record_structs

MAGIC = b"\x93memlens"  # the first byte is no text in any encoding, so that no text file is taken for one
VERSION = 1
EXTENSION = ".memlens"
_HEADER = struct.Struct("<8sI")
_FRAME = struct.Struct("<II")
_EVENTS_PER_FRAME = 4096  # of `save`; a growing record has a frame for each `add`


class Writer:
    """Appends to a growing record; every `add` is one frame, in the kernel's hands when it returns.

    Takes events, marks, processes, spans and assumptions in any order. A process may be added again when
    more is known of it (its end): the last one counts. When the disk is full the record is cut back to its
    last whole frame and RecordError is raised once; what was recorded stays readable.
    """

    def __init__(self, path: str | Path, head: Trace) -> None:
        self.path = Path(path)
        self._sites: dict[Site, int] = {NOWHERE: 0}
        self._encoder = msgspec.msgpack.Encoder()
        try:
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115  (closed by `close`)
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}") from error
        self._size = 0
        try:
            self._write(_HEADER.pack(MAGIC, VERSION))
            self._frame([record_structs.head(head)])
        except RecordError:
            self._file.close()
            raise

    def add(self, *items: record_structs.Item) -> None:
        """Append records as one frame."""
        if items:
            self._frame([record for item in items for record in record_structs.encode(item, self._sites)])

    def metadata(self, **values: Any) -> None:
        """Add to the trace's metadata, or change it."""
        self._frame([record_structs.Metadata(values)])

    def close(self) -> None:
        """Mark the record as whole and close it."""
        if not self._file.closed:
            try:
                self._frame([record_structs.End()])
            finally:
                self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _frame(self, records: list[Any]) -> None:
        try:
            payload = self._encode(records)
        except (TypeError, OverflowError, RecursionError, ValueError) as error:
            raise RecordError(
                f"{self.path} cannot hold this: {error}",
                hint="metadata may hold None, booleans, 64-bit integers, floats, text, lists and dicts",
            ) from error
        self._write(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)

    def _encode(self, records: list[Any]) -> bytes:
        try:
            return self._encoder.encode(records)
        except UnicodeEncodeError:  # a name that is not UTF-8, such as a file's
            return self._encoder.encode(_printable(msgspec.to_builtins(records)))

    def _write(self, data: bytes) -> None:
        remaining = data
        try:
            # a short write is how a full disk or a size limit begins; the next one tells which
            while remaining := remaining[self._file.write(remaining) :]:
                pass
        except OSError as error:
            self._file.truncate(self._size)
            self._file.close()
            raise RecordError(
                f"{self.path} could not grow beyond {self._size} bytes: {error.strerror}; "
                "what was recorded until then can be read"
            ) from error
        self._size += len(data)


def _printable(value: Any) -> Any:
    """The same plain data with text that UTF-8 can hold."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return value


def save(trace: Trace, path: str | Path) -> None:
    """Write a whole trace. `load(path)` gives an equal one; metadata must be JSON-like (tuples are not)."""
    with Writer(path, trace) as writer:
        writer.add(*trace.assumptions, *trace.processes, *trace.marks, *trace.spans)
        for start in range(0, len(trace.events), _EVENTS_PER_FRAME):
            writer.add(*trace.events[start : start + _EVENTS_PER_FRAME])


def sniff(head: bytes) -> bool:
    """Whether a file that begins with these bytes is one of ours."""
    return head.startswith(MAGIC)


def load(path: str | Path) -> Trace:
    """Read a record, also one that is still growing or whose writer was killed.

    Raises RecordError for a foreign, newer, damaged or hostile file.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    _check_header(path, data)
    decoder = record_structs.Decoder()
    try:
        for payload in _payloads(path, data):
            decoder.feed(payload)
        trace = decoder.trace()
    except (msgspec.DecodeError, ValueError, LookupError, RecursionError, MemoryError, TypeError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    if not decoder.ended:
        trace.assumptions.append(
            Assumption(
                "the record ends early",
                f"its writer was stopped or is still writing; {len(trace.events)} events could be read",
            )
        )
    return trace


def _check_header(path: Path, data: bytes) -> None:
    if not sniff(data):
        raise RecordError(f"{path} is not a memlens record: it begins with {data[:8]!r}")
    if len(data) < _HEADER.size:
        raise RecordError(f"{path} holds {len(data)} bytes: its writer was stopped before the first record")
    version = _HEADER.unpack_from(data)[1]
    if not 1 <= version <= VERSION:
        raise RecordError(
            f"{path} has record version {version}; this memlens reads up to {VERSION}",
            hint="pip install --upgrade memlens",
        )


def _payloads(path: Path, data: bytes) -> Iterator[memoryview]:
    """The frames' contents. The last may be torn: dropped. One before it may not: an error."""
    view, place = memoryview(data), _HEADER.size
    while place + _FRAME.size <= len(data):
        size, checksum = _FRAME.unpack_from(data, place)
        start = place + _FRAME.size
        place = start + size
        payload = view[start:place]
        if len(payload) == size and zlib.crc32(payload) == checksum:
            yield payload
        elif place < len(data):
            raise RecordError(
                f"{path} is damaged: the frame at byte {start - _FRAME.size} fails its checksum"
            )
