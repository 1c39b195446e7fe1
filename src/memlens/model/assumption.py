"""What was guessed, why, and how many bytes the guess could move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Assumption:
    """How far the process' peak may be below (`low_bytes`, negative) and above (`high_bytes`) what is shown.

    `allocated_bytes` says the same of the peak of allocated memory; None: it moves by the same bytes.
    """

    what: str
    why: str
    low_bytes: int = 0
    high_bytes: int = 0
    allocated_bytes: tuple[int, int] | None = None

    @property
    def allocated_range(self) -> tuple[int, int]:
        """How far the peak of allocated memory may be below and above what is shown."""
        return (self.low_bytes, self.high_bytes) if self.allocated_bytes is None else self.allocated_bytes

    def to_dict(self) -> dict[str, Any]:
        """As every result's JSON has it."""
        low_allocated, high_allocated = self.allocated_range
        return {
            "what": self.what,
            "why": self.why,
            "low_bytes": self.low_bytes,
            "high_bytes": self.high_bytes,
            "low_allocated_bytes": low_allocated,
            "high_allocated_bytes": high_allocated,
        }
