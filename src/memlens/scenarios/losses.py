"""What is minimised: named losses, the user's own, and what the outputs themselves suggest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from memlens.errors import MemlensError, TargetError, UsageError
from memlens.model import Assumption
from memlens.scenarios import userfile
from memlens.scenarios.constructor_names import unknown
from memlens.scenarios.user_frames import last_line, place, shape_text
from memlens.simulation.core.tensors_in import tensors_in

Loss = Callable[[Any, torch.Tensor | None], torch.Tensor]
NAMES = ("cross_entropy", "mse", "bce", "sum", "mean")


@dataclass
class Objective:
    """`loss(outputs)` for one loop. Targets are made on the device when their shape is first known.

    `assumptions` fills with what had to be guessed while the first step ran.
    """

    given: Any = None  # None (inferred), a name, `output.loss`, `package:function`, or a callable
    inputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    name: str = ""
    target: torch.Tensor | None = None
    assumptions: list[Assumption] = field(default_factory=list)
    label: Callable[[torch.Tensor], None] = lambda tensor: None
    _loss: Loss | None = None

    def __call__(self, outputs: Any, token_shape: torch.Size | None = None) -> torch.Tensor:
        if self._loss is None:
            self.name, self._loss = self._choose(outputs, token_shape)
        try:
            loss = self._loss(outputs, self.target)
        except MemlensError:
            raise
        except Exception as problem:
            shapes = ", ".join(shape_text(t.shape) for t in tensors_in(outputs))
            raise TargetError(
                f"the loss {self.name} failed on outputs of {shapes}: {last_line(problem)} ({place(problem)})"
            ) from problem
        return check_scalar(loss, self.name)

    def _choose(self, outputs: Any, token_shape: torch.Size | None) -> tuple[str, Loss]:
        if callable(self.given):
            return self._custom(
                self.given, getattr(self.given, "__name__", type(self.given).__name__), outputs
            )
        if self.given is None:
            return self._infer(outputs, token_shape)
        text = str(self.given)
        if text.startswith("output."):
            return text, lambda out, target: reach(out, text)
        if ":" in text:
            place_, _, name = text.rpartition(":")
            userfile.check(place_)
            return self._custom(userfile.load(place_, name), text, outputs)
        if text not in NAMES:
            raise unknown("loss", text, [*NAMES, "output.loss"])
        return text, self._named(text, outputs)

    def _infer(self, outputs: Any, token_shape: torch.Size | None) -> tuple[str, Loss]:
        if isinstance(get(outputs, "loss"), torch.Tensor):
            return "output.loss", lambda out, target: reach(out, "output.loss")
        main = first_tensor(outputs)
        is_tokens = token_shape is not None and main.ndim == 3 and main.shape[:2] == token_shape
        if main.ndim == 2 or is_tokens:
            why = f"the first output, {shape_text(main.shape)}, looks like classes; --loss sets another"
            self.assumptions.append(Assumption("the loss is cross_entropy", why))
            return "cross_entropy", self._named("cross_entropy", outputs)
        floats = sum(t.nbytes for t in tensors_in(outputs) if t.is_floating_point())
        why = f"outputs of {shape_text(main.shape)} do not say what is minimised; --loss does"
        # cross entropy, the most demanding of the usual ones, keeps a log-softmax and makes its gradient
        self.assumptions.append(Assumption("the loss is the mean of all outputs", why, 0, 2 * floats))
        return "mean", self._named("mean", outputs)

    def _named(self, name: str, outputs: Any) -> Loss:
        if name in ("sum", "mean"):
            return lambda out, target: total(out, name)
        main = first_tensor(outputs)
        if name == "cross_entropy":
            flat = main.ndim == 3
            shape = main.shape[:2] if flat else (main.shape[0], *main.shape[2:])
            self._make_target(shape, torch.int64, main.device)
            return _cross_entropy_tokens if flat else _cross_entropy
        self._make_target(main.shape, main.dtype, main.device)
        return _mse if name == "mse" else _bce

    def _custom(self, function: Any, name: str, outputs: Any) -> tuple[str, Loss]:
        wants = getattr(function, "forward", function)
        needed = [p for p in inspect.signature(wants).parameters.values() if p.default is p.empty]
        if len(needed) <= 1:
            return name, lambda out, target: function(out)
        main = first_tensor(outputs)
        if main.ndim == 2:
            self._make_target(main.shape[:1], torch.int64, main.device)
        else:
            self._make_target(main.shape, main.dtype, main.device)
        target = self.target
        assert target is not None
        kind = f"{str(target.dtype).removeprefix('torch.')} of {shape_text(target.shape)}"
        self.assumptions.append(Assumption(f"{name} gets a target: {kind}", "its own target is not known"))
        return name, lambda out, target: function(out, target)

    def _make_target(self, shape: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.target = torch.zeros(tuple(shape), dtype=dtype, device=device)
        self.label(self.target)


def _cross_entropy(out: Any, target: Any) -> torch.Tensor:
    return functional.cross_entropy(first_tensor(out), target)


def _cross_entropy_tokens(out: Any, target: torch.Tensor | None) -> torch.Tensor:
    assert target is not None
    return functional.cross_entropy(first_tensor(out).flatten(0, 1), target.flatten())


def _mse(out: Any, target: Any) -> torch.Tensor:
    return functional.mse_loss(first_tensor(out), target)


def _bce(out: Any, target: Any) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(first_tensor(out), target)


def total(outputs: Any, how: str) -> torch.Tensor:
    """The sum (of sums or of means) of every floating-point output."""
    floats = [t for t in tensors_in(outputs) if t.is_floating_point() or t.is_complex()]
    if not floats:
        raise UsageError(f"the model returned {type(outputs).__name__} without a number to minimise")
    reduced = [getattr(t.abs() if t.is_complex() else t, how)() for t in floats]
    return reduced[0] if len(reduced) == 1 else torch.stack(reduced).sum()


def first_tensor(outputs: Any) -> torch.Tensor:
    for tensor in tensors_in(outputs):
        if tensor.is_floating_point():
            return tensor
    raise UsageError(
        f"the model returned {type(outputs).__name__} without a floating-point tensor",
        hint="name the loss: --loss output.NAME or --loss file.py:function",
    )


def get(outputs: Any, name: str) -> Any:
    if isinstance(outputs, Mapping):
        return outputs.get(name)
    return getattr(outputs, name, None)


def reach(outputs: Any, path: str) -> Any:
    """`output.losses.total`: attributes and keys, one after the other."""
    value = outputs
    for part in path.split(".")[1:]:
        value = get(value, part)
        if value is None:
            raise UsageError(f"--loss {path}: the model's {type(outputs).__name__} has no {part!r}")
    return value


def check_scalar(loss: Any, name: str) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        raise UsageError(f"the loss {name} is a {type(loss).__name__}, not a tensor")
    if loss.numel() != 1:
        raise UsageError(f"the loss {name} has shape {shape_text(loss.shape)}; backward needs one number")
    return loss
