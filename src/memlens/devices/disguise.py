"""The device that a tensor without data reports: a simulation puts its own answer here while it runs."""

from __future__ import annotations

from typing import Any


def device_of(tensor: Any) -> Any:
    """The device that user code sees for a `meta` tensor; its own where nothing is simulated."""
    return tensor.device
