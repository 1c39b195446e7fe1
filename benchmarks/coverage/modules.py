"""`module_db`: each module built, moved, and run forward and backward, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

from benchmarks.coverage.places import Place
from benchmarks.coverage.programs import Case, Program, backward, gradients, second_backward, spread

MODES = ("training", "evaluation")
TWICE = "backward twice"


def cases(samples: int) -> Iterator[Case]:
    """Two rows per module, and one for the second backward, of at most `samples` samples."""
    for info in module_db:
        dtype = torch.float32 if torch.float32 in info.dtypes else next(iter(info.dtypes))
        for form in (*MODES, *([TWICE] if info.supports_gradgrad else [])):
            make = partial(_programs, info, dtype, form, samples)
            yield Case("module_db", info.name, form, str(dtype).removeprefix("torch."), make)


def _programs(info: Any, dtype: torch.dtype, form: str, most: int) -> Iterator[Program]:
    torch.manual_seed(0)
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=form != "evaluation"
    )
    for number, given in spread(list(inputs), most):
        if given.forward_input is not None:
            label = f"sample {number} {given.desc}".strip()
            yield Program(label, partial(_prepare, info, given, dtype, form), partial(_run, form))


def _prepare(info: Any, given: Any, dtype: torch.dtype, form: str, place: Place) -> Any:
    torch.manual_seed(0)
    args, kwargs = place.put((given.constructor_input.args, given.constructor_input.kwargs))
    module = info.module_cls(*args, **kwargs)
    if not info.is_lazy:
        module = module.to(place.device, dtype)
    module.train(form != "evaluation")
    if info.is_lazy:
        module = module.to(place.device)
    return module, place.put((given.forward_input.args, given.forward_input.kwargs))


def _run(form: str, state: Any) -> dict[str, Any]:
    module, (args, kwargs) = state
    out = module(*args, **kwargs)
    leaves = [args, kwargs, list(module.parameters())]
    if form == TWICE:
        second_backward(out, leaves)
    else:
        backward(out)
    return {"out": out, "grad": gradients(leaves), "state": list(module.state_dict().values())}
