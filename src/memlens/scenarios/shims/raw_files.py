"""`--synthetic`: numpy's memory maps and raw files that are not there, as language models are fed from."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from memlens.scenarios.shims.registry import Shims, shim

FILE_BYTES = 64 << 20  # of a made-up binary file


@shim("numpy")
def files(shims: Shims, numpy: ModuleType) -> dict[str, Any]:
    """`numpy.memmap` and `numpy.fromfile` of a file that is not there: zeros, which any vocabulary has."""
    if not shims.synthetic:
        return {}
    memmap, fromfile = numpy.memmap, numpy.fromfile

    def zeros(file: Any, dtype: Any, shape: Any) -> Any:
        shims.make_up(f"{os.fspath(file)} is made up: {FILE_BYTES} bytes of zeros")
        return numpy.zeros(shape or FILE_BYTES // numpy.dtype(dtype).itemsize, dtype)

    def map_or_zeros(
        filename: Any,
        dtype: Any = numpy.uint8,
        mode: str = "r+",
        offset: int = 0,
        shape: Any = None,
        **rest: Any,
    ) -> Any:
        if hasattr(filename, "read") or os.path.exists(filename) or "w" in mode:
            return memmap(filename, dtype, mode, offset, shape, **rest)
        return zeros(filename, dtype, shape)

    def read_or_zeros(file: Any, dtype: Any = float, *args: Any, **rest: Any) -> Any:
        if hasattr(file, "read") or os.path.exists(file):
            return fromfile(file, dtype, *args, **rest)
        return zeros(file, dtype, None)

    return {"memmap": map_or_zeros, "fromfile": read_or_zeros}
