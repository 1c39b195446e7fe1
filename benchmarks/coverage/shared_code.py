"""Which operators run the same C++ on the CPU and on CUDA: torch's own table of kernels says so.

The table is native_functions.yaml, shipped in torchgen. An operator shares its code where both devices name
one function, or where it is composed of others. Operators for which memlens states what CUDA does otherwise
(every rule has its reason) do not.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torchgen
import yaml

from memlens.simulation.rules import registry

_TABLE = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"


@functools.cache
def _kernels() -> dict[str, dict[str, str]]:
    """Of each operator (`aten::add.Tensor`), the function of each dispatch key."""
    entries = yaml.load(_TABLE.read_text(), Loader=yaml.CSafeLoader)
    by_name = {entry["func"].partition("(")[0]: entry for entry in entries}
    return {f"aten::{name}": _dispatch(entry, by_name) for name, entry in by_name.items()}


def _dispatch(entry: dict[str, Any], by_name: dict[str, Any]) -> dict[str, str]:
    delegate = entry.get("structured_delegate")
    table = (by_name[delegate] if delegate else entry).get("dispatch") or {}
    return {key.strip(): kernel for keys, kernel in table.items() for key in keys.split(",")}


# one function for both in the table, but what it calls on the CPU allocates for itself
OWN_ON_CPU = {
    "aten::scatter_add": "the CPU sorts the indices (cpu/ScatterGatherKernel.cpp)",
    "aten::scatter_add_": "the same",
    "aten::gather": "the same",
    "aten::take": "the CPU makes its index contiguous",
}  # fmt: skip

# a rule answers for arguments that the samples do not have, torch's meta kernel for theirs
RULED_BESIDE = {"aten::where.self": "masks of uint8"}


def load() -> None:
    """Read the tables, once for all rows."""
    _kernels()
    _ruled()


@functools.cache
def is_shared(name: str) -> bool:
    """Whether the CPU and CUDA run one function for `aten::NAME.OVERLOAD`, and no rule says otherwise."""
    if name in OWN_ON_CPU or name in _ruled() or name not in _kernels():
        return False
    kernels = _kernels()[name]
    return kernels.get("CPU") == kernels.get("CUDA")


@functools.cache
def _ruled() -> set[str]:
    tables = (registry.OPERATORS, registry.SCRATCH, registry.COMPOSITES)
    ruled = {operator.name() for table in tables for operator in table} | registry.FALLBACKS.keys()
    return ruled - RULED_BESIDE.keys()
