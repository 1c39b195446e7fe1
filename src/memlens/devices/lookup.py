"""Find a card by the name people type.

>>> find_gpu("4090").name
'NVIDIA GeForce RTX 4090'
>>> find_gpu("a100-80gb").compute_capability
(8, 0)
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from memlens.devices.calibrated import calibrated
from memlens.devices.names import QUALIFIERS, name_tokens, normalise
from memlens.errors import UsageError
from memlens.model.trace import Device
from memlens.units import MIB, format_bytes

# PyTorch's cuBLAS workspace, one for each (thread with a handle, stream), inside the allocator.
# aten/src/ATen/cuda/CublasHandlePool.cpp: 2 * 4096 KiB + 8 * 16 KiB, and 4096 * 8 KiB for compute capability
# 9 to 12 (read in torch 2.14.1+cu130's binary; 9.0 since 2022, 10 and 12 since early 2026).
CUBLAS_WORKSPACE_BYTES = 8_519_680
CUBLAS_WORKSPACE_BYTES_SINCE_HOPPER = 32 * MIB

# `--memory 24GiB` names no chip. Ampere is the oldest generation on which everything that people use runs
# (bf16, TF32, flash attention), and its context range is the widest of those in use.
ASSUMED_CAPABILITY = (8, 0)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card.

    `name` is the driver's, with the memory added where one name is sold with several sizes. `memory_bytes`
    is the smallest total_memory that torch is known to report for it, `memory_range` the smallest and the
    largest; `context_bytes` is (low, expected, high), held outside PyTorch's allocator. `verified` is False
    where no reading of this very card was found. `note` says what was chosen when the name that was asked
    for fits several cards.
    """

    name: str
    memory_bytes: int
    memory_range: tuple[int, int]
    compute_capability: tuple[int, int]
    multiprocessors: int
    cublas_workspace_bytes: int
    context_bytes: tuple[int, int, int]
    aliases: tuple[str, ...]
    source: str
    context_source: str
    verified: bool
    nominal_gb: int
    vendor: str = "nvidia"
    note: str = ""

    def device(self) -> Device:
        """What a `Trace` keeps of the card."""
        return Device(self.name, self.memory_bytes, self.compute_capability, self.context_bytes)


def cublas_workspace_bytes(compute_capability: tuple[int, int]) -> int:
    """The workspace that PyTorch gives each cuBLAS handle by default on an NVIDIA card.

    >>> cublas_workspace_bytes((8, 9)), cublas_workspace_bytes((9, 0))
    (8519680, 33554432)
    """
    return CUBLAS_WORKSPACE_BYTES_SINCE_HOPPER if 9 <= compute_capability[0] <= 12 else CUBLAS_WORKSPACE_BYTES


@cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads(files("memlens.devices").joinpath("catalogue.toml").read_text("utf-8"))


def _context(name: str, compute_capability: tuple[int, int] | None) -> tuple[tuple[int, int, int], str]:
    """The context of a card: its own reading, else the rule of its generation."""
    catalogue = _catalogue()
    rules = catalogue["context"]
    generation = ".".join(map(str, compute_capability)) if compute_capability else "any"
    entry = catalogue["context_of"].get(name) or rules.get(generation) or rules["any"]
    low, expected, high = (int(mib * MIB) for mib in entry["mib"])
    return (low, expected, high), entry["source"]


def _read(entry: dict[str, Any]) -> Gpu:
    major, minor = entry["compute_capability"]
    low, high = entry["memory_bytes"]
    context_bytes, context_source = _context(entry["name"], (major, minor))
    return Gpu(
        name=entry["name"],
        memory_bytes=low,
        memory_range=(low, high),
        compute_capability=(major, minor),
        multiprocessors=entry["multiprocessors"],
        cublas_workspace_bytes=entry.get("cublas_workspace_bytes", cublas_workspace_bytes((major, minor))),
        context_bytes=context_bytes,
        aliases=tuple(entry.get("aliases", ())),
        source=entry["source"],
        context_source=context_source,
        verified=entry.get("verified", True),
        nominal_gb=entry["nominal_gb"],
        vendor=entry.get("vendor", "nvidia"),
    )


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every card of the catalogue, oldest generation first."""
    return tuple(_read(entry) for entry in _catalogue()["gpu"])


def _tokens_of(gpu: Gpu) -> frozenset[str]:
    """The words that may be said of a card: its name, its aliases, its nominal memory."""
    words = name_tokens(gpu.name) | {f"{gpu.nominal_gb}gb"}
    return frozenset(words.union(*(name_tokens(alias) for alias in gpu.aliases)))


def _candidates(wanted: frozenset[str]) -> list[Gpu]:
    """The cards of which every wanted word is true, those with the fewest unasked qualifiers.

    "4090" is the desktop card although the laptop's is called so too, and "4070" is not a "4070 Ti".
    """
    fits = [(gpu, _tokens_of(gpu)) for gpu in all_gpus()]
    fits = [(gpu, words) for gpu, words in fits if wanted <= words]
    if not fits:
        return []
    surplus = {gpu.name: len((words - wanted) & QUALIFIERS) for gpu, words in fits}
    fewest = min(surplus.values())
    return [gpu for gpu, _ in fits if surplus[gpu.name] == fewest]


def as_gpu(gpu: str | Gpu | None) -> Gpu | None:
    """What a Python function was given as its card: a card, a name to look up, or none.

    >>> as_gpu("T4").name, as_gpu(None)
    ('Tesla T4', None)
    """
    if gpu is None or isinstance(gpu, Gpu):
        return gpu
    if isinstance(gpu, str):
        return find_gpu(gpu)
    raise UsageError(f"gpu={gpu!r} names no card", hint=f'write the name as text: gpu="{gpu}"')


def find_gpu(name: str) -> Gpu:
    """The card called `name`, typed as people do: "4090", "a100-80gb", "RTX 3060 12GB", "Tesla T4".

    A name that fits cards with different memory ("A100") gives the one with the least, and `note` names the
    others. Raises UsageError with the nearest names when there is no such card.

    >>> find_gpu("a100").note
    "'a100' fits NVIDIA A100-SXM4-40GB and NVIDIA A100-SXM4-80GB; the smallest memory was taken"
    """
    wanted = name_tokens(name)
    says_which = any(not word.endswith("gb") for word in wanted)
    found = sorted(_candidates(wanted), key=lambda gpu: gpu.memory_bytes) if says_which else []
    if not found:
        raise UsageError(f"memlens knows no GPU called {name!r}", hint=_nearest(name))
    gpu = found[0]
    if len({other.nominal_gb for other in found}) > 1:
        others = [other.name for other in found[1:] if other.nominal_gb != gpu.nominal_gb]
        names = ", ".join([gpu.name, *others[:-1]])
        note = f"{name!r} fits {names} and {others[-1]}; the smallest memory was taken"
        gpu = replace(gpu, note=note)
    return calibrated(gpu)


def _nearest(name: str) -> str:
    """The three names nearest to an unknown one, as a hint."""
    spellings: dict[str, str] = {}
    for gpu in all_gpus():
        for alias in (gpu.name, *gpu.aliases):
            words = normalise(alias).split()
            bare = [word for word in words if not word.endswith("gb") and word not in ("sxm", "pcie")]
            spellings.setdefault(" ".join(words), gpu.name)
            spellings.setdefault(" ".join(bare), gpu.name)
    close = get_close_matches(normalise(name), spellings, n=6, cutoff=0.6)
    names = list(dict.fromkeys(spellings[spelling] for spelling in close))[:3]
    listed = "`memlens gpus` lists them all, and --memory 24GiB needs no name"
    return f"the nearest are {', '.join(names)}; {listed}" if names else listed


def custom_gpu(memory_bytes: int) -> Gpu:
    """A card of which only the memory is known, for `--memory 24GiB`.

    It is taken for an Ampere chip (compute capability 8.0); the cuBLAS workspace is that of the newest chips,
    which is the larger, and the context range covers every generation.
    """
    if memory_bytes <= 0:
        raise UsageError(f"a GPU needs memory, got {memory_bytes} bytes", hint="write for example 24GiB")
    context_bytes, context_source = _context("", None)
    return Gpu(
        name=f"a GPU with {format_bytes(memory_bytes)}",
        memory_bytes=memory_bytes,
        memory_range=(memory_bytes, memory_bytes),
        compute_capability=ASSUMED_CAPABILITY,
        multiprocessors=108,
        cublas_workspace_bytes=CUBLAS_WORKSPACE_BYTES_SINCE_HOPPER,
        context_bytes=context_bytes,
        aliases=(),
        source="given by the user",
        context_source=context_source,
        verified=False,
        nominal_gb=round(memory_bytes / 10**9),
        note="no card was named: compute capability 8.0 (Ampere), the larger cuBLAS workspace and a context "
        "of any generation are assumed",
    )
