"""Find a card by the name people type.

>>> find_gpu("4090").name
'NVIDIA GeForce RTX 4090'
>>> find_gpu("a100-80gb").compute_capability
(8, 0)
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any

from memlens.devices.calibrated import apply_calibration
from memlens.devices.catalogue import read_catalogue
from memlens.devices.generations import all_generations, generation_of
from memlens.devices.gpu import Context, Gpu
from memlens.devices.names import QUALIFIERS, name_tokens, normalise
from memlens.errors import UsageError
from memlens.units import MIB, format_bytes

# `--memory 24GiB` names no chip. Ampere is the oldest generation on which everything that people use runs
# (bf16, TF32, flash attention), and its context range is the widest of those in use.
ASSUMED_CAPABILITY = (8, 0)


def _context(name: str, compute_capability: tuple[int, int] | None) -> Context:
    """The context of a card: its own reading, else the rule of its generation."""
    catalogue = read_catalogue()
    rules = catalogue["context"]
    generation = ".".join(map(str, compute_capability)) if compute_capability else "any"
    entry = catalogue["context_of"].get(name) or rules.get(generation) or rules["any"]
    low, expected, high = (int(mib * MIB) for mib in entry["mib"])
    high = max(high, int(entry.get("eager_mib", 0) * MIB))
    cudnn = catalogue["context_libraries"]["cudnn_mib"] * MIB
    return Context((low, expected, high + cudnn), (low, expected, high), entry["source"])


def _read(entry: dict[str, Any]) -> Gpu:
    major, minor = entry["compute_capability"]
    low, high = entry["memory_bytes"]
    return Gpu(
        name=entry["name"],
        memory_bytes=low,
        memory_range=(low, high),
        compute_capability=(major, minor),
        multiprocessors=entry["multiprocessors"],
        cublas_workspace_bytes=entry.get(
            "cublas_workspace_bytes", generation_of((major, minor)).cublas_workspace_bytes
        ),
        context=_context(entry["name"], (major, minor)),
        aliases=tuple(entry.get("aliases", ())),
        source=entry["source"],
        verified=entry.get("verified", True),
        nominal_gb=entry["nominal_gb"],
        vendor=entry.get("vendor", "nvidia"),
    )


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every card of the catalogue, oldest generation first."""
    return tuple(_read(entry) for entry in read_catalogue()["gpu"])


def _tokens_of(gpu: Gpu) -> frozenset[str]:
    """The words that may name a card: its name, its aliases, its nominal memory."""
    words = name_tokens(gpu.name) | {f"{gpu.nominal_gb}gb"}
    return frozenset(words.union(*(name_tokens(alias) for alias in gpu.aliases)))


def _candidates(wanted: frozenset[str]) -> list[Gpu]:
    """The cards whose names have every wanted word, those with the fewest unasked qualifiers.

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

    With its own figures, where `memlens calibrate` has them.
    """
    return apply_calibration(find_in_catalogue(name))


def find_in_catalogue(name: str) -> Gpu:
    """The card called `name`, as the catalogue has it.

    A name that fits cards with different memory ("A100") gives the one with the least, and `note` names the
    others. Raises UsageError with the nearest names when there is no such card.

    >>> find_in_catalogue("a100").note
    "'a100' fits NVIDIA A100-SXM4-40GB and NVIDIA A100-SXM4-80GB; the smallest memory was taken"
    """
    wanted = name_tokens(name)
    says_which = any(not word.endswith("gb") for word in wanted)
    candidates = sorted(_candidates(wanted), key=lambda gpu: gpu.memory_bytes) if says_which else []
    if not candidates:
        raise UsageError(f"memlens knows no GPU called {name!r}", hint=_nearest(name))
    gpu = candidates[0]
    if len({other.nominal_gb for other in candidates}) > 1:
        others = [other.name for other in candidates[1:] if other.nominal_gb != gpu.nominal_gb]
        names = ", ".join([gpu.name, *others[:-1]])
        note = f"{name!r} fits {names} and {others[-1]}; the smallest memory was taken"
        gpu = replace(gpu, note=note)
    return gpu


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
    return f"did you mean {' or '.join(names)}? {listed}" if names else listed


def custom_gpu(memory_bytes: int) -> Gpu:
    """A card of which only the memory is known, for `--memory 24GiB`.

    It is taken for an Ampere chip (compute capability 8.0), but the cuBLAS workspace is the largest and the
    context range the widest of all generations.
    """
    if memory_bytes <= 0:
        raise UsageError(f"a GPU needs memory, got {memory_bytes} bytes", hint="write for example 24GiB")
    return Gpu(
        name=f"a GPU with {format_bytes(memory_bytes)}",
        memory_bytes=memory_bytes,
        memory_range=(memory_bytes, memory_bytes),
        compute_capability=ASSUMED_CAPABILITY,
        multiprocessors=108,
        cublas_workspace_bytes=max(item.cublas_workspace_bytes for item in all_generations()),
        context=_context("", None),
        aliases=(),
        source="given by the user",
        verified=False,
        nominal_gb=round(memory_bytes / 10**9),
        note="no card was named: compute capability 8.0 (Ampere), the larger cuBLAS workspace and a context "
        "of any generation are assumed",
    )
