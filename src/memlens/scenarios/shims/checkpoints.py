"""Checkpoints: what has no data is remembered instead of written."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from memlens.scenarios.shims.registry import Shims, shim
from memlens.scenarios.shims.weights import NoWeights

STUB = b"memlens: a checkpoint of a simulated run, without data\n"


def detached(torch: Any, value: Any) -> Any:
    """The structure of `value` with host tensors that have no data behind them."""
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype)
    if isinstance(value, dict):
        return {key: detached(torch, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(detached(torch, item) for item in value)
    return value


def absent(shims: Shims, path: Any) -> NoWeights:
    """With `--synthetic`: weights whose file is not there."""
    shims.say(f"what {os.fspath(path)} holds is taken as weights, and as random", "it is not on this machine")
    return NoWeights()


@shim("torch")
def checkpoints(shims: Shims, torch: ModuleType) -> dict[str, Any]:
    """`torch.save` keeps the structure in mind and writes a stub; `torch.load` gives it back."""
    load = torch.load

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if hasattr(f, "write"):
            f.write(STUB)
            return
        with open(f, "wb") as file:
            file.write(STUB)
        shims.saved[os.path.abspath(os.fspath(f))] = detached(torch, obj)

    def load_again(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        known = None if hasattr(f, "read") else shims.saved.get(os.path.abspath(os.fspath(f)))
        if known is not None:
            return known
        if shims.job["synthetic"] and not hasattr(f, "read") and not os.path.exists(f):
            return absent(shims, f)
        if not hasattr(f, "read"):
            kwargs.setdefault("mmap", True)  # pages that nobody reads take no memory
        return load(f, "cpu", *args, **kwargs)

    return {"save": save, "load": load_again}


@shim("safetensors.torch")
def safetensors(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """The file that safetensors writes in Rust is a stub in the scratch folder; so is its content."""

    def serialize(tensors: dict[str, Any], filename: Any, metadata: Any = None) -> None:
        with open(filename, "wb") as file:
            file.write(STUB)

    def as_they_are(tensors: dict[str, Any], *_: Any) -> dict[str, Any]:
        return dict(tensors)

    load = module.load_file

    def load_file(filename: Any, *args: Any, **kwargs: Any) -> Any:
        if shims.job["synthetic"] and not os.path.exists(filename):
            return absent(shims, filename)
        return load(filename, *args, **kwargs)

    table: dict[str, Any] = {"serialize_file": serialize, "load_file": load_file}
    # the helper's name differs between versions
    return table | {name: as_they_are for name in ("_flatten", "_flatten_as_ptr") if hasattr(module, name)}
