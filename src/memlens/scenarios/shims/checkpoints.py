"""Checkpoints: what has no data is remembered by the simulation (save_and_load.py), not written."""

from __future__ import annotations

import os
import zipfile
from types import ModuleType
from typing import Any

from memlens.scenarios.shims.no_weights import NoWeights
from memlens.scenarios.shims.registry import Shims, shim


def absent(shims: Shims, path: Any) -> NoWeights:
    """With `--synthetic`: weights whose file is not there."""
    shims.make_up(f"what {os.fspath(path)} holds is taken as weights, and as random")
    return NoWeights()


@shim("torch")
def checkpoints(shims: Shims, torch: ModuleType) -> dict[str, Any]:
    """Files are opened by Python, so that what is written goes to the scratch folder."""
    written: set[str] = set()

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if hasattr(f, "write"):
            torch.serialization.save(obj, f, *args, **kwargs)
            return
        with open(f, "wb") as file:
            torch.serialization.save(obj, file, *args, **kwargs)
        written.add(os.path.abspath(os.fspath(f)))

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(f, "read"):
            if shims.synthetic and not os.path.exists(f):
                return absent(shims, f)
            # pages that are never read take no memory; files of torch before 1.6 are no archives
            if os.path.abspath(os.fspath(f)) not in written and zipfile.is_zipfile(f):
                kwargs.setdefault("mmap", True)
        return torch.serialization.load(f, map_location, *args, **kwargs)

    return {"save": save, "load": load}


@shim("safetensors.torch")
def safetensors(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """The file that safetensors writes in Rust is one of the simulation's; so is its content."""
    import torch

    def serialize(tensors: dict[str, Any], filename: Any, metadata: Any = None) -> None:
        torch.save(tensors, filename)

    def as_they_are(tensors: dict[str, Any], *_: Any) -> dict[str, Any]:
        return dict(tensors)

    load = module.load_file

    def load_file(filename: Any, *args: Any, **kwargs: Any) -> Any:
        if shims.synthetic and not os.path.exists(filename):
            return absent(shims, filename)
        return load(filename, *args, **kwargs)

    table: dict[str, Any] = {"serialize_file": serialize, "load_file": load_file}
    # the helper's name differs between versions
    return table | {name: as_they_are for name in ("_flatten", "_flatten_as_ptr") if hasattr(module, name)}
