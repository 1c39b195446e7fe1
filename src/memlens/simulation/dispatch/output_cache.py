"""Outputs of operators from a table: the same call makes the same shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

META = torch.device("meta")


class Recipe:
    """How to make an operator's outputs again: sizes, strides, dtypes, and what is no tensor."""

    __slots__ = ("container", "specs")

    def __init__(self, container: type | None, specs: tuple[Any, ...]) -> None:
        self.container = container
        self.specs = specs

    def build(self) -> Any:
        made = [
            torch.empty_strided(spec[0], spec[1], dtype=spec[2], device=META) if type(spec) is tuple else spec
            for spec in self.specs
        ]
        if self.container is None:
            return made[0]
        return tuple(made) if self.container is tuple else made


def describe(values: Any, metas: list[Tensor], reals: list[Tensor], key: list[Any]) -> None:
    """Sort the tensors among `values` into meta and real, and append to `key` what identifies the call."""
    for value in values:
        if isinstance(value, Tensor):
            if value.is_meta:
                metas.append(value)
            else:
                reals.append(value)
            key += (
                value.dtype,
                value.shape,
                value.stride() if value.layout is torch.strided else value.layout,
            )
        elif value is None or type(value) is str:
            key.append(value)
        elif type(value) in (list, tuple):
            key.append(len(value))
            describe(value, metas, reals, key)
        else:
            key += (type(value), value)  # 1, 1.0 and True are equal, and give different dtypes


def recipe_of(out: Any, metas: list[Tensor]) -> Recipe | None:
    """The recipe of a call's outputs; None where one is an alias, part of a larger storage or special."""
    outputs = out if isinstance(out, (tuple, list)) else (out,)
    mine = {tensor.untyped_storage()._cdata for tensor in metas}
    specs: list[Any] = []
    for item in outputs:
        if not isinstance(item, Tensor):
            if isinstance(item, (tuple, list)):
                return None
            specs.append(item)
            continue
        plain = item.is_meta and item.layout is torch.strided and item.storage_offset() == 0
        key = item.untyped_storage()._cdata if plain else 0
        if not plain or key in mine or item.is_conj() or item.is_neg():
            return None
        mine.add(key)
        specs.append((tuple(item.shape), item.stride(), item.dtype))
    container = None if outputs is not out else (tuple if isinstance(out, tuple) else list)
    return Recipe(container, tuple(specs))
