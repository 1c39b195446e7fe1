"""What a simulated card says in place of the driver and of torch, while a simulation runs.

A simulation puts itself into PROVIDERS and takes itself out again; who asks for a card's use or a tensor's
device asks here first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Bytes in use on one card. A figure that the driver does not give is None, and `reason` says why."""

    used_bytes: int | None = None
    process_bytes: int | None = None
    reason: str = ""


class Provider(Protocol):
    """A simulated card."""

    def device_of(self, tensor: Any) -> Any:
        """The device that user code sees for a tensor without data."""

    def device_use(self) -> DeviceUse:
        """What the card holds, and this process's share of it."""


PROVIDERS: list[Provider] = []


def device_of(tensor: Any) -> Any:
    """The device that user code sees for a `meta` tensor; its own where nothing is simulated."""
    return PROVIDERS[-1].device_of(tensor) if PROVIDERS else tensor.device
