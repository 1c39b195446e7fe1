"""What all NVIDIA cards of one compute capability have in common.

>>> generation_of((8, 9)).cublas_workspace_bytes, generation_of((9, 0)).cublas_workspace_bytes
(8519680, 33554432)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from memlens.devices.catalogue import read_catalogue
from memlens.units import MIB


@dataclass(frozen=True, slots=True)
class Generation:
    """Facts of a compute capability; `catalogue.toml` has the source of each.

    `cublas_workspace_bytes` is what PyTorch gives each cuBLAS handle by default; `bf16` and `tf32` say
    whether the tensor cores take these numbers.
    """

    compute_capability: tuple[int, int]
    chips: str
    l2_bytes: int
    threads_per_sm: int
    bf16: bool
    tf32: bool
    cublas_workspace_bytes: int
    source: str


@cache
def all_generations() -> tuple[Generation, ...]:
    """Every generation of the catalogue, oldest first."""
    return tuple(
        Generation(
            compute_capability=_numbers(capability),
            chips=entry["chips"],
            l2_bytes=int(entry["l2_mib"] * MIB),
            threads_per_sm=entry["threads_per_sm"],
            bf16=entry["bf16"],
            tf32=entry["tf32"],
            cublas_workspace_bytes=entry["cublas_workspace_bytes"],
            source=entry["source"],
        )
        for capability, entry in read_catalogue()["generation"].items()
    )


def _numbers(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)


@cache
def generation_of(compute_capability: tuple[int, int]) -> Generation:
    """The generation of a card; where the catalogue has none, the newest before it (else the oldest).

    >>> generation_of((12, 1)).compute_capability
    (12, 0)
    """
    oldest, *newer = all_generations()
    older = [generation for generation in newer if generation.compute_capability <= compute_capability]
    return older[-1] if older else oldest
