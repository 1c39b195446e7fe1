"""`optim_db`: each optimizer in each configuration and implementation, two steps on a small model."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch.testing._internal.common_optimizers import (
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
)

from benchmarks.coverage.places import Place
from benchmarks.coverage.programs import Case, Program

STEPS = 2


def cases(samples: int) -> Iterator[Case]:
    """A row per optimizer, configuration and implementation, as CUDA offers them."""
    for info in optim_db:
        for given in _get_optim_inputs_including_global_cliquey_kwargs("cuda", torch.float32, info):
            make = partial(_programs, info, given)
            yield Case("optim_db", info.optim_cls.__name__, given.desc, "float32", make)


def _programs(info: Any, given: Any) -> Iterator[Program]:
    torch.manual_seed(0)
    yield Program("", partial(_prepare, info, given), partial(_run, info))


def _prepare(info: Any, given: Any, place: Place) -> Any:
    shapes = [(10, 5), (7, 3)] if info.optim_cls is torch.optim.Muon else [(10, 5), (10,), (3, 4, 2)]
    values = [torch.randn(shape).requires_grad_() for shape in shapes]
    parameters = place.put(values)
    gradients = [torch.randn(shape) for shape in shapes]
    if info.only_supports_sparse_grads:
        gradients = [gradient.to_sparse() for gradient in gradients]
    kwargs = deepcopy(given.kwargs)
    if place.device == "cpu" and "capturable" in kwargs:
        kwargs["capturable"] = False  # into a CUDA graph: the CPU refuses
    return parameters, place.put(gradients), place.put(kwargs)


def _run(info: Any, state: Any) -> dict[str, Any]:
    parameters, gradients, kwargs = state
    optimizer = info.optim_cls(parameters, **kwargs)

    # so unlike each other that L-BFGS has not converged when its iterations end: what it keeps is known then
    weights = [(1.2 ** torch.arange(p.numel(), device=p.device)).reshape(p.shape) for p in parameters]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(
            (weight * (1 + parameter**2).sqrt()).sum()
            for weight, parameter in zip(weights, parameters, strict=True)
        )
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        return loss

    for _ in range(STEPS):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step(closure if info.step_requires_closure else None)
    held = {
        f"state of {number} {name}": value
        for number, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
    }
    return {"parameters": parameters, **held}
