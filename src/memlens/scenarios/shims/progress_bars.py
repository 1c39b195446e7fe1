"""tqdm's bars for notebooks, which need a browser: bars of text instead, where widgets are missing."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from memlens.scenarios.shims.registry import Shims, shim


@shim("tqdm.notebook")
def text_bars(shims: Shims, notebook: ModuleType) -> dict[str, Any]:
    """`tqdm.notebook.tqdm` and `trange`, as `tqdm.std` has them."""
    if getattr(notebook, "IProgress", None) is not None:
        return {}
    from tqdm import std

    return {"tqdm": std.tqdm, "tqdm_notebook": std.tqdm, "trange": std.trange, "tnrange": std.trange}
