"""What advice is: figures of simulated runs, ranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memlens.answers import Answer
from memlens.explanation.prediction import Prediction, to_dict
from memlens.units import format_bytes

SCHEMA = "memlens.advice/1"


@dataclass(frozen=True, slots=True)
class Advised:
    """One change and what the process needs with it. `fits` is None where no card was named."""

    name: str
    what: str
    how: str
    saves_bytes: int
    process_bytes: int
    high_process_bytes: int
    fits: bool | None
    changes_result: bool
    cost: str


@dataclass(frozen=True, slots=True)
class Combination:
    """Several changes together, simulated together."""

    names: tuple[str, ...]
    what: str
    how: str
    saves_bytes: int
    process_bytes: int
    high_process_bytes: int
    fits: bool
    changes_result: bool
    cost: str


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """The largest batch that fits with `margin_bytes` to spare; 0 where not even one sample does.

    `next_process_bytes` is what one sample more would need, with the same margin too much. Where `capped` is
    true the search stopped at `batch_size`, which still fits. `certain_batch_size` fits the card even where
    all that is assumed is at its worst; it is the same where that is no question.
    """

    batch_size: int
    process_bytes: int | None
    margin_bytes: int
    next_process_bytes: int | None
    capped: bool = False
    certain_batch_size: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A change that the model does not take, and the reason in one line."""

    name: str
    why: str


@dataclass(frozen=True, repr=False)
class Advice(Answer):
    """What the scenario needs as it is (`base`), and what would change that, most useful first.

    Ranked: what leaves the result of training as it is before what does not, then by bytes saved.
    """

    base: Prediction
    advice: tuple[Advised, ...]
    combination: Combination | None = None
    largest_batch: LargestBatch | None = None
    refused: tuple[Refused, ...] = ()
    simulated: int = 0

    @property
    def found(self) -> bool | None:
        """Whether it fits as it is or with what was found; None where no card was named."""
        if self.largest_batch is not None:
            return self.largest_batch.batch_size > 0
        if self.base.fits is None:
            return None
        single = any(item.fits for item in self.advice)
        return self.base.fits or single or (self.combination is not None and self.combination.fits)

    def headline(self) -> str:
        """The answer as it is, and what helps most."""
        if self.largest_batch is not None:
            return f"{self.base.target}: the largest batch is {self.largest_batch.batch_size:,}"
        best = max(self.advice, key=lambda item: item.saves_bytes, default=None)
        more = f"; {best.name} saves {format_bytes(best.saves_bytes)}" if best else "; nothing would help"
        return f"{self.base.headline()}{more}"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each change."""
        return [to_dict(item) for item in self.advice]

    def to_dict(self) -> dict[str, Any]:
        """The contract `memlens.advice/1`, ready for json."""
        base, device = self.base, self.base.device
        return {
            "schema": SCHEMA,
            "target": base.target,
            "scenario": base.scenario,
            "device": {"name": device.name, "memory_bytes": device.memory_bytes},
            "base": {
                "process_bytes": base.peak.process_bytes,
                "high_process_bytes": base.peak.high_process_bytes,
                "fits": base.fits,
                "headroom_bytes": base.headroom_bytes,
                "breakdown_at_peak": {str(key): size for key, size in base.breakdown.items()},
            },
            "advice": [to_dict(item) for item in self.advice],
            "combination": _plain(self.combination),
            "largest_batch": _plain(self.largest_batch),
            "refused": [to_dict(item) for item in self.refused],
            "simulated": self.simulated,
            "memlens": base.memlens,
            "torch": base.torch,
        }


def _plain(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    return {k: list(v) if isinstance(v, tuple) else v for k, v in to_dict(value).items()}
