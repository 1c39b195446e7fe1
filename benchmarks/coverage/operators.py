"""`op_db`: each operator forward and backward, in place, and backward twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from benchmarks.coverage.places import Place
from benchmarks.coverage.programs import Case, Program, backward, gradients, second_backward, spread

# the first that CPU and CUDA both have is the row's dtype
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool, torch.bfloat16)
IN_PLACE = "in place"
TWICE = "backward twice"


def cases(samples: int) -> Iterator[Case]:
    """A row per operator and form, of at most `samples` samples."""
    for info in op_db:
        dtype = _dtype(info)
        if dtype is None:
            continue
        forms = [""]
        forms += [IN_PLACE] if info.inplace_variant is not None else []
        forms += [TWICE] if info.supports_gradgrad and _has_gradient(info, dtype) else []
        for form in forms:
            variant = ", ".join(filter(None, (info.variant_test_name, form)))
            make = partial(_programs, info, dtype, form, samples if not form else max(2, samples // 3))
            yield Case("op_db", info.name, variant, str(dtype).removeprefix("torch."), make)


def _dtype(info: Any) -> torch.dtype | None:
    both = info.supported_dtypes("cpu") & info.supported_dtypes("cuda")
    return next((dtype for dtype in DTYPES if dtype in both), next(iter(sorted(both, key=str)), None))


def _has_gradient(info: Any, dtype: torch.dtype) -> bool:
    return info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")


def _programs(info: Any, dtype: torch.dtype, form: str, most: int) -> Iterator[Program]:
    torch.manual_seed(0)
    requires_grad = _has_gradient(info, dtype)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    for number, sample in spread(samples, most):
        if (form == IN_PLACE and sample.broadcasts_input) or not _names_a_device(sample):
            continue
        yield Program(f"sample {number}", partial(_prepare, info, sample), partial(_run, info, form, sample))


def _names_a_device(sample: Any) -> bool:
    """Whether a sample has a tensor or says where to make one; others are made on the host on both sides."""
    given = (sample.input, sample.args, sample.kwargs)
    return any(
        isinstance(leaf, (torch.Tensor, torch.device)) or leaf == "cpu" for leaf in pytree.tree_leaves(given)
    )


# arguments that a real call has on the host, too
_ON_HOST = {"tensor_split"}


def _prepare(info: Any, sample: Any, place: Place) -> Any:
    if info.name in _ON_HOST:
        return (place.put(sample.input), sample.args, sample.kwargs)
    return place.put((sample.input, sample.args, sample.kwargs))


def _run(info: Any, form: str, sample: Any, state: Any) -> dict[str, Any]:
    source, args, kwargs = state
    if form == IN_PLACE:
        out = info.inplace_variant(source.clone(), *args, **kwargs)
    else:
        out = info.op(source, *args, **kwargs)
    chosen = sample.output_process_fn_grad(out)
    if form == TWICE:
        second_backward(chosen, state)
    else:
        backward(chosen)
    return {"out": out, "grad": gradients(state)}
