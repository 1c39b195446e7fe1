"""How a program is recorded, and the program that runs. Little is imported: the program waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from memlens.measurement.run import fast_start, programs


@dataclass(frozen=True, slots=True)
class Settings:
    """How to record. `figure` is a key of model.FIGURES; `timeout_s` ends the recording, not the program."""

    interval_s: float = fast_start.INTERVAL_SECONDS
    figure: str = "rss"
    include_children: bool = False  # show the sum over processes instead of each
    timeout_s: float | None = None
    inside: dict[str, object] = field(default_factory=dict)  # options of bootstrap.py
    exact: bool = False  # every allocation, through memray
    bare: bool = False  # start the program as it is, with nothing of ours inside


@dataclass(frozen=True, slots=True)
class Started:
    """A program that runs: where it talks to us, and where memray writes, if it does."""

    program: programs.Program
    waiter: programs.Waiter
    started_us: int
    channel: str
    capture: str | None
    seen: list[tuple[int, int]]  # (time, resident bytes) before anybody recorded
