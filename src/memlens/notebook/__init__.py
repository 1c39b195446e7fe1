"""Magics for IPython and notebooks: `%load_ext memlens`.

A new magic is a row in MAGICS and a class in a module of its own.
"""

from __future__ import annotations

import importlib
from typing import Any

# module with a `magics_class`, and the class's name
MAGICS: dict[str, str] = {
    "memlens.notebook.host": "HostMagics",
    "memlens.notebook.gpu": "GpuMagics",
}


def load_ipython_extension(ipython: Any) -> None:
    """What `%load_ext memlens` calls."""
    for module, name in MAGICS.items():
        ipython.register_magics(getattr(importlib.import_module(module), name))
