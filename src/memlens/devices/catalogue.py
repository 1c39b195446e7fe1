"""The file of cards and generations: `catalogue.toml`, which says what its keys mean."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read_catalogue() -> dict[str, Any]:
    """Its tables: `generation`, `context`, `context_of`, and the list `gpu`."""
    return tomllib.loads(files("memlens.devices").joinpath("catalogue.toml").read_text("utf-8"))
