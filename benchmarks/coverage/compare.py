"""What differs between the real run and the simulated one, and the outcome of a row."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.coverage.known import why_known
from benchmarks.coverage.seen import Description, Seen
from benchmarks.coverage.shared_code import is_shared

AGREES = "agrees"
REFUSED = "refused"
DIFFERS = "differs"
CRASHES = "crashes"
NO_HOST = "no real run"  # nothing to compare with: the CPU has no kernel
# what memlens says where a size depends on data, and the largest is taken
BOUNDS = ("is taken to keep all", "taken to be all different", "no element of")
WORST_LAST = (NO_HOST, AGREES, REFUSED, DIFFERS, CRASHES)


@dataclass(frozen=True)
class Verdict:
    """Of one sample: the outcome, what differs or was refused, and whether the peaks were compared."""

    outcome: str
    what: str = ""
    peak_compared: bool = False
    bounded: bool = False
    known: tuple[str, ...] = ()  # why it differs as a real card does


@dataclass
class Row:
    """One operator, module or optimizer in one form and dtype: the worst of its samples."""

    table: str
    name: str
    variant: str
    dtype: str
    outcome: str = NO_HOST
    what: str = ""
    sample: str = ""
    samples: int = 0
    peaks_compared: int = 0
    bounded: int = 0
    uncounted: int = 0
    known: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict, sample: str, uncounted: int) -> None:
        self.samples += verdict.outcome != NO_HOST
        self.peaks_compared += verdict.peak_compared
        self.bounded += verdict.bounded
        self.uncounted += uncounted
        self.known += [why for why in verdict.known if why not in self.known]
        if WORST_LAST.index(verdict.outcome) > WORST_LAST.index(self.outcome):
            self.outcome = verdict.outcome
            self.what, self.sample = verdict.what, "" if verdict.outcome == AGREES else sample

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def verdict(name: str, host: Seen, device: Seen) -> Verdict:
    """The outcome of one sample of the row `name`."""
    if host.error:
        return Verdict(AGREES if device.error else NO_HOST)
    if device.error and why_known(name, device.error):
        return Verdict(AGREES, known=(why_known(name, device.error),))
    if device.error:
        return Verdict(REFUSED if device.refused else CRASHES, device.error)
    if device.uncounted:
        return Verdict(DIFFERS, f"uncounted: {device.uncounted[0]}")
    bounded = any(bound in text for text in device.assumptions for bound in BOUNDS)
    differences = metadata(host.tensors, device.tensors, bounded)
    own = sorted(name for name in device.kernels if not is_shared(name))
    compared = not own and not bounded
    if compared and host.peak_bytes != device.peak_bytes:
        differences.append(f"peak: {device.peak_bytes} bytes, on the CPU {host.peak_bytes}")
    reasons = {difference: why_known(name, difference) for difference in differences}
    unknown = [difference for difference, why in reasons.items() if not why]
    known = tuple(sorted(filter(None, set(reasons.values()))))
    if unknown:
        return Verdict(DIFFERS, "; ".join(unknown[:3]), compared, bounded, known)
    return Verdict(AGREES, "", compared, bounded, known)


def metadata(
    host: dict[str, Description | str], device: dict[str, Description | str], bounded: bool
) -> list[str]:
    """What differs in the metadata of the same tensors; a bound may be larger than the truth."""
    differences = [f"{name}: only on one side" for name in sorted(host.keys() ^ device.keys())]
    for name in host.keys() & device.keys():
        real, simulated = host[name], device[name]
        if isinstance(real, str) or isinstance(simulated, str):
            if isinstance(real, str) != isinstance(simulated, str) or real != simulated:
                differences.append(f"{name}: {_short(simulated)}, on the CPU {_short(real)}")
            continue
        differences += [
            f"{name}: {field} {ours}, on the CPU {theirs}"
            for field, ours, theirs in zip(Description._fields, simulated, real, strict=True)
            if not _same(field, simulated, real, bounded)
        ]
    return differences


def _short(value: Description | str) -> str:
    return value if isinstance(value, str) else f"a tensor {value.shape}"


def _same(field: str, simulated: Description, real: Description, bounded: bool) -> bool:
    ours, theirs = getattr(simulated, field), getattr(real, field)
    if ours == theirs:
        return True
    if bounded and field in ("shape", "stride", "storage_bytes"):
        return len(simulated.shape) == len(real.shape) and simulated.storage_bytes >= real.storage_bytes
    if field == "stride" and simulated.shape == real.shape:
        pairs = zip(real.shape, ours, theirs, strict=False)
        return 0 in real.shape or all(size == 1 or a == b for size, a, b in pairs)  # others reach nothing
    return False
