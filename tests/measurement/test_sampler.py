"""Sampling a family of processes: lives, peaks, what costs too much to read at every tick."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from memlens.measurement.host.reading import Denied, Reading, Shares
from memlens.measurement.run.driver_processes import Gpus
from memlens.measurement.run.sampler import Pace, Sampler
from memlens.model import Process, Sample


class Family:
    """A reader whose processes are what a test says: pid -> (parent, reading)."""

    def __init__(self) -> None:
        self.members: dict[int, tuple[int | None, Reading]] = {1: (None, Reading(100, 0, 120))}
        self.denied: set[int] = set()

    def family(self) -> dict[int, int | None]:
        return {pid: parent for pid, (parent, _) in self.members.items()}

    def read(self, pid: int) -> Reading | None:
        return self.members[pid][1] if pid in self.members else None

    def shares(self, pid: int) -> Shares | None:
        if pid in self.denied:
            raise Denied(f"process {pid} is another user's")
        return Shares(pid * 10, pid * 5)

    def name(self, pid: int) -> str:
        return f"p{pid}"

    def close(self) -> None:
        self.members.clear()


def sampler(family: Family, **options: Any) -> Sampler:
    return Sampler(Process(1, "main", None, 0), family, **options)


def test_lives_of_children() -> None:
    """A child has a process when it is first seen, and an end at the first tick that misses it."""
    family = Family()
    watched = sampler(family)
    watched.tick(10)
    family.members[2] = (1, Reading(50, 0, 55))
    first = watched.tick(20)
    assert Process(2, "p2", 1, 20, peak_rss_bytes=55) in first
    del family.members[2]
    (ended,) = [item for item in watched.tick(30) if isinstance(item, Process)]
    assert (ended.pid, ended.ended_us) == (2, 30)


def test_the_program_ends_when_we_are_told() -> None:
    """Its end and exit code come from waiting for it, not from a sample that missed it."""
    family = Family()
    watched = sampler(family)
    watched.tick(10)
    family.members.clear()
    assert [item for item in watched.tick(20) if isinstance(item, Process)] == []
    (program,) = watched.finish(25, 3)
    assert (program.ended_us, program.exit_code, program.peak_rss_bytes) == (25, 3, 120)


def test_a_new_child_that_looks_like_its_parent_waits_a_tick() -> None:
    """Between vfork and exec a child shows its parent's memory: counting it would double the sum."""
    family = Family()
    watched = sampler(family)
    watched.tick(10)
    family.members[2] = family.members[3] = (1, Reading(100, 0, 120))
    assert [item.pid for item in watched.tick(20) if isinstance(item, Sample)] == [1]
    family.members[2] = (1, Reading(7, 0, 7))  # it executed a program; 3 is a fork that is just alike
    assert {item.pid: item.rss_bytes for item in watched.tick(30) if isinstance(item, Sample)} == {
        1: 100, 2: 7, 3: 100,
    }  # fmt: skip


def test_denied_shares_are_none_and_said_once() -> None:
    """PSS of a process that is not ours is None, never 0, and the reason is kept."""
    family = Family()
    family.denied = {1}
    watched = sampler(family, every_share=True)
    (sample,) = [item for item in watched.tick(10) if isinstance(item, Sample)]
    assert (sample.rss_bytes, sample.pss_bytes, sample.uss_bytes) == (100, None, None)
    assert watched.denied == "process 1 is another user's"


def test_a_costly_reading_takes_its_share_of_the_time() -> None:
    """A reading of 2 seconds at a share of 1 % is due again after 200 seconds."""
    now = [0.0]
    pace = Pace(0.01, clock=lambda: now[0])
    assert pace.due()
    with pace.paid():
        now[0] = 2.0
    for time, due in ((3.0, False), (201.9, False), (202.1, True)):
        now[0] = time
        assert pace.due() is due


class Nvml:
    """The driver's library as far as it is asked: two cards, and what it says of their processes."""

    class NVMLError(Exception):
        pass

    def __init__(self, *cards: list[tuple[int, int | None]] | str) -> None:
        self.cards = cards

    def nvmlInit(self) -> None:
        if self.cards == ("no driver",):
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Any:
        return self.cards[number]

    def nvmlDeviceGetMigMode(self, card: Any) -> list[int]:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetComputeRunningProcesses(self, card: Any) -> list[Any]:
        if isinstance(card, str):
            raise self.NVMLError(card)
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in card]

    def nvmlDeviceGetMemoryInfo(self, card: Any) -> Any:
        return SimpleNamespace(used=1000, total=100_000)


def test_gpu_memory_of_a_process_is_the_sum_over_cards() -> None:
    """A process on two cards holds what it holds on both; the sample carries it."""
    gpus = Gpus(Nvml([(1, 300), (99, 5)], [(1, 40)]))
    (sample,) = [item for item in sampler(Family(), gpus=gpus).tick(10) if isinstance(item, Sample)]
    assert sample.gpu_bytes == 340
    assert gpus.reason is None


@pytest.mark.parametrize(
    ("cards", "reason"),
    [
        (["no driver"], "the NVIDIA driver says: Driver Not Loaded"),
        ([[(1, None)]], "the driver hides memory per process here (WSL, WDDM or MIG)"),
        (["Not Supported"], "the NVIDIA driver says: Not Supported"),
    ],
)
def test_what_the_driver_will_not_say_has_a_reason(cards: list[Any], reason: str) -> None:
    """No driver, a driver that hides processes, a call that is not supported: None and why, never 0."""
    gpus = Gpus(Nvml(*cards))
    (sample,) = [item for item in sampler(Family(), gpus=gpus).tick(10) if isinstance(item, Sample)]
    assert sample.gpu_bytes is None
    assert gpus.reason == reason


def test_the_device_total_is_the_fallback() -> None:
    """Where processes cannot be told apart, what all cards use together still can be said."""
    assert Gpus(Nvml([(1, None)], [])).used_bytes() == 2000
    assert Gpus(Nvml("no driver")).used_bytes() is None
