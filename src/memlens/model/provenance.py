"""Where a record came from: the entries of `Trace.metadata` that memlens writes, with their types."""

from __future__ import annotations

from typing import Any, TypedDict


class Provenance(TypedDict, total=False):
    """What made a record. Each entry is there only in records that know it.

    Of every recording: `source` is its file, `format` its kind where that is not memlens' own, `started_us`
    when it began. Of a torch snapshot: `device` is the card that is shown and `devices` all that were
    recorded; the first `baseline_events` stand for what was there before; `complete` if nothing was;
    `allocator_settings` are those that PyTorch recorded. Of a run: its `command`, which `figure` was asked
    for (a key of FIGURES), sampled every `interval_s` seconds, `include_children` if all processes count;
    how it ended (`exit_code`, negative for a signal), why there is no GPU figure (`gpu`), the most that one
    process held (`largest_process_bytes`), Python's own peaks by pid (`python_peaks`), the `lines` and
    `top_lines` it was started with. Of a memray capture: `allocations` and `peak_allocated_bytes`. Of a
    prediction: `prediction`, what the trace cannot say (explanation/prediction_record.py).
    """

    source: str
    format: str
    started_us: int
    device: int
    devices: list[int]
    baseline_events: int
    complete: bool
    allocator_settings: dict[str, Any]
    command: str
    figure: str
    interval_s: float
    include_children: bool
    exit_code: int | None
    gpu: str | None
    largest_process_bytes: int | None
    python_peaks: dict[str, int]
    lines: list[dict[str, Any]]
    top_lines: list[tuple[str, int]]
    allocations: int
    peak_allocated_bytes: int
    prediction: dict[str, Any]
