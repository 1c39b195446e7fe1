"""`memlens.summary()`: the call that people type for torchinfo and torchsummary, with memory that is true."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memlens.errors import UsageError
from memlens.render.summaries.formulas import to_formulas
from memlens.render.summaries.html import to_html
from memlens.render.summaries.layers import to_text
from memlens.render.summaries.like import to_like
from memlens.summaries.sizes import shape_spec
from memlens.summaries.summarise import summarise
from memlens.summaries.summary import Summary
from memlens.summaries.view import DEFAULT_DEPTH, check_columns

ROW_SETTINGS = ("ascii_only", "depth", "var_names", "hide_recursive_layers")


@dataclass(frozen=True, repr=False)
class ModelSummary(Summary):
    """A `Summary` that prints itself: `str()` is the table, and notebooks show it as one."""

    columns: tuple[str, ...] = ()
    depth: int = DEFAULT_DEPTH
    row_settings: tuple[str, ...] = field(default=("var_names", "depth"))

    def __str__(self) -> str:
        width = shutil.get_terminal_size((120, 24)).columns
        if self.like:
            return to_like(self, self.like, width)
        return to_text(
            self, width=width, depth=self.depth, columns=self.columns, row_settings=self.row_settings
        )

    def _repr_html_(self) -> str:
        return to_html(self, depth=self.depth, columns=self.columns)


def summary(
    model: Any,
    input_size: Any = None,
    input_data: Any = None,
    batch_dim: int | None = None,
    cache_forward_pass: bool | None = None,
    col_names: Iterable[str] | None = None,
    col_width: int | None = None,
    depth: int = DEFAULT_DEPTH,
    device: Any = None,
    dtypes: Sequence[Any] | None = None,
    mode: str = "train",
    row_settings: Iterable[str] | None = None,
    verbose: int | None = None,
    *,
    batch_size: int | None = None,
    precision: str | None = None,
    seq_len: int | None = None,
    model_args: Mapping[str, Any] | None = None,
    like: str | None = None,
    **kwargs: Any,
) -> ModelSummary:
    """One row per layer, with bytes that are true; called as torchinfo's or torchsummary's `summary` is.

    Args:
        model: an `nn.Module` on any device (it is neither moved, changed nor run), or any target of
            `memlens.predict` ("timm:resnet50").
        input_size: a shape or a list of shapes. With the batch, as for torchinfo; without it where
            `batch_size` or `batch_dim` is given, or where the first convolution wants one dimension more, as
            for torchsummary: `summary(model, (3, 224, 224), batch_size=32)`.
        input_data: tensors instead of shapes, or tuples or dictionaries of them.
        batch_dim: where a batch dimension of `batch_size` (1) is put into every shape.
        col_names: columns by torchinfo's words and memlens's, `memlens.summaries.view.COLUMNS`.
        depth: rows below this depth are added to the row above them.
        dtypes: of the inputs, where they are not the model's own.
        mode: "train" (default), "eval", "same" as the model is, or "inference", which keeps nothing.
        row_settings: of "ascii_only", "depth", "var_names", "hide_recursive_layers".
        verbose: 0 prints nothing, 1 the table, 2 the formulas too; by default 1 in scripts, 0 in a session,
            where the returned object shows itself.
        precision: fp32, bf16, fp16, amp-bf16 or amp-fp16.
        like: "torchsummary" or "torchinfo": print that tool's figures next to the true ones.
        device, cache_forward_pass, col_width: taken so that calls need not change; nothing runs on a device,
            nothing is worth caching, and columns are as wide as what is in them.
        kwargs: further arguments of the model's forward.

    Returns:
        A `ModelSummary`: `rows`, `totals`, `to_dict()`, `to_csv()`; it prints itself.

    >>> from torch import nn
    >>> result = summary(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()), (256, 1024), verbose=0)
    >>> result.totals.kept_bytes
    2097152
    """
    settings = check_row_settings(row_settings)
    columns = check_columns(col_names or ())
    if verbose is None:
        verbose = 0 if hasattr(sys, "ps1") else 1
    inputs, data = read_sizes(model, input_size, input_data, batch_dim, dtypes, batch_size)
    result = summarise(
        model, inputs=inputs, input_data=data, kwargs=kwargs, batch_size=batch_size or 1, mode=mode,
        precision=precision, seq_len=seq_len, model_args=model_args, like=like,
    )  # fmt: skip
    fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    result = ModelSummary(**fields, columns=columns, depth=depth, row_settings=settings)
    if verbose:
        print(result)
    if verbose > 1:
        print(to_formulas(result))
    return result


def check_row_settings(names: Iterable[str] | None) -> tuple[str, ...]:
    """torchinfo's row settings; an unknown one is an error with the known ones."""
    if names is None:
        return ("var_names", "depth")
    settings = tuple(str(name) for name in ((names,) if isinstance(names, str) else names))
    for name in settings:
        if name not in ROW_SETTINGS:
            raise UsageError(f"there is no row setting {name!r}", hint=f"they are {', '.join(ROW_SETTINGS)}")
    return settings


def read_sizes(
    model: Any, input_size: Any, input_data: Any, batch_dim: int | None, dtypes: Any, batch_size: int | None
) -> tuple[Any, Any]:
    """`inputs` and `input_data` as `summarise` takes them, from what the other tools' users pass.

    A text such as "3x224x224" stays what it is; shapes are read as `input_size` of `summary` says.
    """
    if input_size is None:
        if dtypes is not None and input_data is None:
            raise UsageError("dtypes were given without input_size")
        return None, input_data
    if input_data is not None:
        raise UsageError("input_size and input_data both say what goes in", hint="leave one of them out")
    if isinstance(input_size, str):
        return input_size, None
    sizes = list(input_size) if _is_list(input_size) else [input_size]
    kinds = [_dtype(kind) for kind in dtypes] if dtypes is not None else [None] * len(sizes)
    if len(kinds) != len(sizes):
        raise UsageError(f"{len(sizes)} input sizes were given and {len(kinds)} dtypes")
    return [
        shape_spec(model, tuple(size), dtype, batch_dim, batch_size)
        for size, dtype in zip(sizes, kinds, strict=True)
    ], None


def _dtype(kind: Any) -> Any:
    """`torch.FloatTensor`, which torchsummary's own signature has, as `torch.float32`."""
    return getattr(kind, "dtype", kind)


def _is_list(sizes: Any) -> bool:
    return bool(sizes) and not all(isinstance(n, int) for n in sizes)
