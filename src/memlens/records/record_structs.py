"""How the parts of a `Trace` look inside a `.memlens` frame: tagged arrays, made from the model's classes.

Sites repeat (an allocation in a loop has the same one every time), so each is written once and referred to
by number; number 0 is nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from functools import reduce
from operator import attrgetter, or_
from typing import Any, Literal, TypeAlias, cast, get_type_hints

import msgspec

from memlens.model import (
    NOWHERE,
    Alloc,
    Assumption,
    Device,
    Event,
    Free,
    Mark,
    OutOfMemory,
    Process,
    Provenance,
    Sample,
    SegmentAlloc,
    SegmentFree,
    Site,
    Span,
    Trace,
)

Item: TypeAlias = Event | Mark | Process | Span | Assumption


class Head(msgspec.Struct, tag="head", array_like=True):
    """What is known before the first event."""

    origin: Literal["predicted", "measured", "imported"]
    device: Device | None = None
    baseline_allocated_bytes: int = 0
    baseline_reserved_bytes: int = 0
    metadata: dict[str, Any] = {}


class Metadata(msgspec.Struct, tag="metadata", array_like=True):
    """More metadata, known later."""

    values: dict[str, Any]


class End(msgspec.Struct, tag="end", array_like=True):
    """The writer closed the record: nothing is missing."""


def _struct(cls: type, tag: str) -> type[msgspec.Struct]:
    """The wire form of a model class: the same fields in order, a site by its number."""
    hints = get_type_hints(cls)

    def column(field: Field[Any]) -> Any:
        if hints[field.name] is Site:
            return (field.name, int, 0)
        if field.default is MISSING:
            return (field.name, hints[field.name])
        return (field.name, hints[field.name], field.default)

    return msgspec.defstruct(
        f"{cls.__name__}Record", [column(field) for field in fields(cls)], tag=tag, array_like=True
    )


# model class -> tag on disk; a tag is never given to another class
_TAGS: dict[type, str] = {
    Alloc: "a",
    Free: "f",
    SegmentAlloc: "sa",
    SegmentFree: "sf",
    OutOfMemory: "oom",
    Sample: "s",
    Mark: "mark",
    Span: "span",
    Process: "process",
    Assumption: "assumption",
    Site: "site",
}
_STRUCTS = {cls: _struct(cls, tag) for cls, tag in _TAGS.items()}
_MODELS = {struct: cls for cls, struct in _STRUCTS.items()}
_VALUES = {cls: attrgetter(*(field.name for field in fields(cls))) for cls in _TAGS}
_SITED: dict[type, int] = {cls: [f.name for f in fields(cls)].index("site") for cls in (Alloc, OutOfMemory)}
_ANY_RECORD: Any = reduce(or_, [Head, Metadata, End, *_STRUCTS.values()])
_DECODER: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[_ANY_RECORD])


def head(trace: Trace) -> Head:
    """The first record of a file."""
    return Head(
        trace.origin,
        trace.device,
        trace.baseline_allocated_bytes,
        trace.baseline_reserved_bytes,
        dict(trace.metadata),
    )


def encode(item: Item, sites: dict[Site, int]) -> Iterator[msgspec.Struct]:
    """The records of one item: its site first, if this file has not had it yet. Adds to `sites`."""
    values = list(_VALUES[type(item)](item))
    place = _SITED.get(type(item))
    if place is not None:
        site = values[place]
        if site not in sites:
            sites[site] = len(sites)
            yield _STRUCTS[Site](*_VALUES[Site](site))
        values[place] = sites[site]
    yield _STRUCTS[type(item)](*values)


class Decoder:
    """Puts frames together again. `ended` tells whether the writer closed the file."""

    def __init__(self) -> None:
        self.ended = False
        self._trace: Trace | None = None
        self._sites = [NOWHERE]
        self._processes: dict[tuple[int, int], Process] = {}

    def feed(self, payload: bytes | memoryview) -> None:
        """Take one frame; raises msgspec.DecodeError or ValueError where it makes no sense."""
        for record in _DECODER.decode(payload):
            if isinstance(record, Head):
                self._begin(record)
            elif isinstance(record, Metadata):
                self.trace().metadata.update(cast(Provenance, record.values))  # checked in validate.py
            elif isinstance(record, End):
                self.ended = True
            else:
                self._place(self._model(record))

    def trace(self) -> Trace:
        """What was read so far."""
        if self._trace is None:
            raise ValueError("it has no head")
        self._trace.processes = list(self._processes.values())
        return self._trace

    def _begin(self, record: Head) -> None:
        if self._trace is not None:
            raise ValueError("it has two heads")
        self._trace = Trace(
            record.origin,
            device=record.device,
            metadata=cast(Provenance, record.metadata),
            baseline_allocated_bytes=record.baseline_allocated_bytes,
            baseline_reserved_bytes=record.baseline_reserved_bytes,
        )

    def _model(self, record: Any) -> Any:
        cls = _MODELS[type(record)]
        values = list(_VALUES[cls](record))
        if (place := _SITED.get(cls)) is not None:
            number = values[place]
            if not 0 <= number < len(self._sites):
                raise ValueError(f"site {number} is used, {len(self._sites)} are known")
            values[place] = self._sites[number]
        return cls(*values)

    def _place(self, item: Any) -> None:
        match item:
            case Site():
                self._sites.append(item)
            case Process():
                self._processes[item.pid, item.started_us] = item
            case Mark():
                self.trace().marks.append(item)
            case Span():
                self.trace().spans.append(item)
            case Assumption():
                self.trace().assumptions.append(item)
            case _:
                self.trace().events.append(item)
