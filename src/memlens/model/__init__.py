"""What memory is: one record, `Trace`, and the views on it. Standard library only."""

from memlens.model.assumption import Assumption
from memlens.model.breakdown import Breakdown
from memlens.model.category import ALLOCATED, Category
from memlens.model.events import (
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
from memlens.model.site import NOWHERE, Frame, Site
from memlens.model.summary import Peak, Usage, usage
from memlens.model.timeline import Timeline
from memlens.model.trace import Device, Process, Trace
from memlens.model.usage import FIGURES, Curve, curves, shown, total, unsampled

__all__ = [
    "ALLOCATED",
    "FIGURES",
    "NOWHERE",
    "Alloc",
    "Assumption",
    "Breakdown",
    "Category",
    "Curve",
    "Device",
    "Event",
    "Frame",
    "Free",
    "Mark",
    "OutOfMemory",
    "Peak",
    "Process",
    "Sample",
    "SegmentAlloc",
    "SegmentFree",
    "Site",
    "Span",
    "Timeline",
    "Trace",
    "Usage",
    "curves",
    "shown",
    "total",
    "unsampled",
    "usage",
]
