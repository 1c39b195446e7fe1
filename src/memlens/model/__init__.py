"""What memory is: one record, `Trace`, and the views on it. Standard library only."""

from memlens.model.assumption import Assumption
from memlens.model.breakdown import Breakdown
from memlens.model.category import Category
from memlens.model.events import (
    FIGURES,
    Alloc,
    Event,
    Free,
    Mark,
    OutOfMemory,
    Sample,
    SegmentAlloc,
    SegmentFree,
    Span,
)
from memlens.model.provenance import Provenance
from memlens.model.site import NOWHERE, Frame, Site
from memlens.model.timeline import Timeline
from memlens.model.trace import Device, Process, Trace

__all__ = [
    "FIGURES",
    "NOWHERE",
    "Alloc",
    "Assumption",
    "Breakdown",
    "Category",
    "Device",
    "Event",
    "Frame",
    "Free",
    "Mark",
    "OutOfMemory",
    "Process",
    "Provenance",
    "Sample",
    "SegmentAlloc",
    "SegmentFree",
    "Site",
    "Span",
    "Timeline",
    "Trace",
]
