"""What was guessed, why, and how many bytes the guess could move."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """How far the peak may be below (`low_bytes`, negative) and above (`high_bytes`) what is shown."""

    what: str
    why: str
    low_bytes: int = 0
    high_bytes: int = 0
