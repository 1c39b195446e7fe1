"""Peaks inside a line without losing the user's own: CUDA has one peak counter, and each line resets it.

Before each reset the counters' peaks are kept, and whoever asks torch for a peak is answered with the larger
of the two, until they reset it themselves. The functions that answer so are put in place with the first reset
and taken away as soon as torch's own counters say the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from memlens.patching import replaced

# function -> the field of memory_stats whose peak it returns; None for those that return or reset all
_ANSWERS: dict[str, str | None] = {
    "memory_stats": None,
    "max_memory_allocated": "allocated_bytes.all.peak",
    "max_memory_reserved": "reserved_bytes.all.peak",
    "max_memory_cached": "reserved_bytes.all.peak",
    "reset_peak_memory_stats": None,
    "reset_max_memory_allocated": None,
    "reset_max_memory_cached": None,
}
_PLACES = ("torch.cuda.memory", "torch.cuda", "torch.accelerator.memory", "torch.accelerator")


class KeptPeaks:
    """The highest of each `.peak` field of `memory_stats`, by device, since the user last reset it."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[str, int]] = {}
        self._before: dict[tuple[str, str], Any] = {}
        self._ours: dict[tuple[str, str], Any] = {}
        self._patches: replaced | None = None  # entered while ours are in place
        self._users = 0

    def open(self) -> None:
        """Somebody begins to read peaks line by line."""
        self._users += 1
        if not self._is_installed():
            self._kept.clear()
            self._install()

    def close(self) -> None:
        self._users -= 1
        self._leave()

    def stats(self, device: int) -> dict[str, int]:
        """`torch.cuda.memory_stats` as it is, peaks since the last reset of ours."""
        figures: dict[str, int] = self._before["torch.cuda.memory", "memory_stats"](device)
        return figures

    def reset(self, device: int, stats: dict[str, int]) -> None:
        """Begin a new peak, after `stats` was read."""
        kept = self._kept.setdefault(device, {})
        for key, value in stats.items():
            if key.endswith(".peak") and value > kept.get(key, 0):
                kept[key] = value
        self._before["torch.cuda.memory", "reset_peak_memory_stats"](device)

    def _is_installed(self) -> bool:
        """Not so where a simulation has begun or ended meanwhile: it puts other functions in these places."""
        return bool(self._ours) and all(_get(*place) is ours for place, ours in self._ours.items())

    def _install(self) -> None:
        self._before.clear()
        self._ours.clear()
        for module in _PLACES:
            for name, field in _ANSWERS.items():
                if (before := _get(module, name)) is None:
                    continue
                self._before[module, name] = before
                self._ours[module, name] = self._answer(name, field, before)
        self._patches = replaced({".".join(place): ours for place, ours in self._ours.items()})
        self._patches.__enter__()

    def _answer(self, name: str, field: str | None, before: Callable[..., Any]) -> Callable[..., Any]:
        def stats(device: Any = None) -> Any:
            figures = before(device)
            for key, value in self._kept.get(_index(device), {}).items():
                if value > figures.get(key, 0):
                    figures[key] = value
            return figures

        def peak(device: Any = None) -> int:
            return max(int(before(device)), self._kept.get(_index(device), {}).get(field or "", 0))

        def reset(device: Any = None) -> Any:
            self._kept.pop(_index(device), None)
            result = before(device)
            self._leave()
            return result

        return peak if field else stats if name == "memory_stats" else reset

    def _leave(self) -> None:
        """Take our functions away, unless somebody measures or torch's counters are below what was kept."""
        if self._users or not self._is_installed():
            return
        for device, kept in self._kept.items():
            now = self.stats(device)
            if any(value > now.get(key, 0) for key, value in kept.items()):
                return
        assert self._patches is not None
        self._patches.__exit__(None, None, None)
        self._ours.clear()
        self._kept.clear()


def _get(module: str, name: str) -> Any:
    try:
        return vars(importlib.import_module(module)).get(name)
    except ModuleNotFoundError:  # torch.accelerator counts memory since torch 2.9
        return None


def _index(device: Any) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index if device is not None else None
    return int(torch.cuda.current_device() if index is None else index)


KEPT = KeptPeaks()
