"""Which parts a page has: any trace becomes a `Page`."""

from __future__ import annotations

from collections.abc import Sequence

from memlens import __version__
from memlens.explanation.explain import Explanation, explain_trace
from memlens.explanation.over_time import holds_allocations, is_sampled
from memlens.model import Assumption, SegmentAlloc, Trace
from memlens.render.report import allocated, runs
from memlens.render.report.blocks import Cell, Head, Page, Prose, Section, Table, mib, words
from memlens.render.report.holders import TOP


def page_of(trace: Trace, name: str, *, index: int | None = None, top: int = TOP) -> Page:
    """The page of `trace`; `index` is the event to look at, by default the peak."""
    seen = explain_trace(trace, index) if holds_allocations(trace) else None
    assumptions = seen.prediction.assumptions if seen and seen.prediction else trace.assumptions
    head = Head("empty", "This record holds no memory: no allocation and no reading", "warn")
    sections: list[Section] = []
    if is_sampled(trace) or trace.processes:
        head = runs.head(trace)
        sections += runs.sections(trace)
    if seen is not None:
        head = _join_heads(allocated.head(seen), head) if sections else allocated.head(seen)
        sections = [*allocated.sections(seen, top), *sections]
    sections += [*_assumption_sections(assumptions), about(trace, name, seen)]
    return Page(name, head, _with_unique_keys(sections))


def _join_heads(head: Head, run: Head) -> Head:
    """Of a run whose allocations are known: their answer, with the figures of its processes."""
    tone = head.tone or run.tone
    return Head(head.kind, head.headline, tone, [*head.said, *run.said], [*head.facts, *run.facts])


def _with_unique_keys(sections: list[Section]) -> list[Section]:
    """Make keys unique: links lead to them, and a memray capture has sections of both kinds."""
    seen: dict[str, int] = {}
    renamed = []
    for section in sections:
        number = seen[section.key] = seen.get(section.key, 0) + 1
        more = {1: "", 2: ", by process"}.get(number, "")
        key = section.key if number == 1 else f"{section.key}-{number}"
        renamed.append(Section(key, section.title + more, section.blocks, section.lead))
    return renamed


def _assumption_sections(assumptions: Sequence[Assumption]) -> list[Section]:
    if not assumptions:
        return []
    rows = [
        (words(f"{item.what}: {item.why}"), _moved(item.low_bytes), _moved(item.high_bytes))
        for item in assumptions
    ]
    lead = "Every guess, and by how many MiB it may move the peak; an empty cell is a guess without a number."
    table = Table("", ("assumed, and why", "#at least", "#at most"), rows, wide=True)
    return [Section("assumptions", "What is assumed", [table], lead)]


def _moved(size: int) -> Cell:
    return mib(size) if size else words("")


PREDICTED = (
    "Nothing was run on a GPU: PyTorch's operators ran on shapes, and its allocator was simulated. The range "
    "next to the peak is the sum of the assumptions above; what is not assumed there is not in the range. "
    "The loop is the one that was predicted: one that keeps more needs more."
)
MEMRAY = (
    "Every allocation of the process was recorded (memray does it); what they are for is not known. Resident "
    "memory is more: code, stacks, and what the C library keeps."
)
ALLOCATOR = (
    "PyTorch's allocator recorded this. What each allocation is for is inferred from its stack and its life, "
    "unless memlens wrote the record. The CUDA context and what libraries take for themselves (NCCL, cuDNN "
    "outside PyTorch) are not in it: nvidia-smi shows more."
)
SAMPLED = (
    "Processes were read at intervals: what came and went between two readings was not seen, except where "
    "the system keeps a high-water mark. RSS counts shared pages once in every process."
)


def about(trace: Trace, name: str, seen: Explanation | None) -> Section:
    """What the figures are, and what they are not."""
    texts, made = [], f"Made from {name} by memlens {__version__}"
    if seen is not None:
        placed = any(isinstance(event, SegmentAlloc) for event in trace.events)
        texts.append(PREDICTED if trace.origin == "predicted" else ALLOCATOR if placed else MEMRAY)
        if seen.prediction is not None:
            by, torch = seen.prediction.memlens, seen.prediction.torch
            made = f"Predicted by memlens {by} with torch {torch}. {made}"
    if trace.processes:
        texts.append(SAMPLED)
    texts += ["MiB is 2^20 bytes, GiB is 2^30.", f"{made}. This page is one file and loads nothing."]
    return Section("about", "What these figures are", [Prose(text) for text in texts])
