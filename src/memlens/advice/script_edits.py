"""Changes of a script from outside: what is put around, into or in place of parts of it while it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from memlens.advice.attention_switch import attention_switch, turn
from memlens.advice.blocks import checkpoint_these, checkpointing_kind, find_blocks
from memlens.advice.changes.training import before
from memlens.advice.script_observer import ScriptObserver
from memlens.advice.shims.eight_bit import AdamW8bit
from memlens.advice.shims.lora import add_lora
from memlens.advice.shims.offload import offloaded
from memlens.scenarios import checkpointing as whole

ScriptEdit = Callable[[ScriptObserver, Any], None]
EDITS: dict[str, ScriptEdit] = {}
ENOUGH_BATCHES = 8  # for two steps of four parts each


def edits(*names: str) -> Callable[[ScriptEdit], ScriptEdit]:
    """Register a function that is called before the script begins, with the argument of its change."""

    def register(function: ScriptEdit) -> ScriptEdit:
        EDITS.update(dict.fromkeys(names, function))
        return function

    return register


def make_observer(sim: Any, changes: dict[str, Any]) -> ScriptObserver:
    """Observes in the script's process, and makes these changes: `{name of an edit: argument}`."""
    return ScriptObserver(sim, [(EDITS[name], argument) for name, argument in changes.items()])


@edits("amp")
def autocast(observer: ScriptObserver, dtype: str) -> None:
    """From the model's call to backward, so that the loss is inside."""
    observer.arounds.append(lambda: torch.autocast("cuda", dtype=getattr(torch, dtype)))


@edits("weights")
def half_weights(observer: ScriptObserver, dtype: str) -> None:
    """The model, and what it is called with."""
    to = getattr(torch, dtype)
    observer.edits.append(lambda model: model.to(to))
    observer.maps.append(lambda tensor: tensor.to(to) if tensor.is_floating_point() else tensor)


@edits("channels-last")
def channels_last(observer: ScriptObserver, _: Any) -> None:
    layout = torch.channels_last
    observer.edits.append(lambda model: model.to(memory_format=layout))  # type: ignore[call-overload]
    observer.maps.append(
        lambda tensor: tensor.contiguous(memory_format=layout) if tensor.ndim == 4 else tensor
    )


@edits("checkpointing")
def checkpointing(observer: ScriptObserver, paths: list[str] | None) -> None:
    """Of these blocks, or of all as the model offers it."""
    if paths is not None:
        observer.edits.append(lambda model: checkpoint_these(model, paths))
        return

    def all_blocks(model: nn.Module) -> None:
        blocks = find_blocks(model)
        kind = checkpointing_kind(model, blocks)
        if kind == "blocks":
            checkpoint_these(model, blocks)
        elif kind:
            whole.enable(model, "the model")

    observer.edits.append(all_blocks)


@edits("offload")
def offload(observer: ScriptObserver, _: Any) -> None:
    observer.arounds.append(lambda: offloaded(observer.sim) if torch.is_grad_enabled() else torch.no_grad())


@edits("sdpa")
def fused_attention(observer: ScriptObserver, _: Any) -> None:
    observer.edits.append(lambda model: turn(attention_switch(model), model))


@edits("in-place")
def in_place(observer: ScriptObserver, paths: list[str]) -> None:
    def edit(model: nn.Module) -> None:
        for path in paths:
            module: Any = model.get_submodule(path)
            module.inplace = True

    observer.edits.append(edit)


@edits("no-cache")
def no_cache(observer: ScriptObserver, _: Any) -> None:
    def edit(model: Any) -> None:
        if hasattr(getattr(model, "config", None), "use_cache"):
            model.config.use_cache = False

    observer.edits.append(edit)


@edits("free-gradients")
def free_gradients(observer: ScriptObserver, _: Any) -> None:
    observer.stepped.append(lambda optimizer: optimizer.zero_grad(set_to_none=True))


@edits("optimizer-arguments")
def optimizer_arguments(observer: ScriptObserver, arguments: dict[str, Any]) -> None:
    """As if every optimizer of torch's that knows them had been given these."""

    def patched(init: Any, known: set[str]) -> Any:
        def given(self: Any, *args: Any, **kwargs: Any) -> None:
            mine = {name: value for name, value in arguments.items() if name in known}
            bound = inspect.signature(init).bind_partial(self, *args, **kwargs)
            for name in ("foreach", "fused"):
                bound.arguments.pop(name, None)
            bound.arguments.update(mine)
            init(*bound.args, **bound.kwargs)

        return given

    for cls in vars(torch.optim).values():
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and "__init__" in vars(cls):
            known = set(inspect.signature(cls).parameters)
            if known & set(arguments):
                observer.replace((cls, "__init__"), patched(vars(cls)["__init__"], known))


@edits("8-bit-optimizer")
def eight_bit(observer: ScriptObserver, _: Any) -> None:
    """Adam and AdamW keep the states that bitsandbytes' would, and step as it does."""
    other = AdamW8bit([nn.Parameter(torch.empty(0, device="cpu"))])

    def step(self: Any, closure: Any = None) -> Any:
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = other.states(parameter)
        return loss

    for cls in (torch.optim.Adam, torch.optim.AdamW):
        if "step" in vars(cls):
            observer.replace((cls, "step"), step)


@edits("freeze-before")
def freeze(observer: ScriptObserver, path: str) -> None:
    """Only what comes from `path` on is trained."""

    def edit(model: nn.Module) -> None:
        for parameter in list(before(model, path)):
            parameter.requires_grad_(False)

    observer.edits.append(edit)


@edits("freeze-body")
def freeze_body(observer: ScriptObserver, last: str) -> None:
    def edit(model: nn.Module) -> None:
        model.requires_grad_(False)
        model.get_submodule(last).requires_grad_(True)

    observer.edits.append(edit)


@edits("lora")
def lora(observer: ScriptObserver, skip: str) -> None:
    """The pairs are trained by the optimizer that trains the model."""

    def edit(model: nn.Module) -> None:
        old = {id(parameter) for parameter in model.parameters()}
        add_lora(model, skip)
        new = [(m, n, p) for m in model.modules() for n, p in m._parameters.items() if p is not None]
        pairs = [(m, n, p) for m, n, p in new if id(p) not in old]
        for module, name, parameter in pairs:
            setattr(module, name, nn.Parameter(parameter.to("cuda")))
        added = [getattr(module, name) for module, name, _ in pairs]
        for reference in observer.optimizers:
            optimizer = reference()
            mine = (
                {id(p) for group in optimizer.param_groups for p in group["params"]} if optimizer else set()
            )
            if optimizer is not None and mine & old:
                optimizer.param_groups[0]["params"].extend(added)
                return

    observer.edits.append(edit)


@edits("batch")
def batch(observer: ScriptObserver, sizes: list[int]) -> None:
    """Loaders that have the first size get the second; a data set that is too small for it repeats itself."""
    old, new = sizes
    init = DataLoader.__init__

    def other(self: Any, dataset: Any, *args: Any, **options: Any) -> None:
        given = args[0] if args else options.get("batch_size", 1)
        if given == old:
            args, options = ((new, *args[1:]), options) if args else ((), options | {"batch_size": new})
            if options.get("sampler") is None and _too_small(dataset, new):
                dataset = Repeated(dataset, ENOUGH_BATCHES * new)
        init(self, dataset, *args, **options)

    observer.replace((DataLoader, "__init__"), other)


def _too_small(dataset: Any, batch_size: int) -> bool:
    sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    return sized and len(dataset) < ENOUGH_BATCHES * batch_size


class Repeated(torch.utils.data.Dataset[Any]):
    """A data set again and again, up to `length` samples."""

    def __init__(self, dataset: Any, length: int) -> None:
        self.dataset, self.length = dataset, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index % len(self.dataset)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["dataset"], name)


@edits("accumulate")
def accumulate(observer: ScriptObserver, times: int) -> None:
    """Gradients of so many batches are summed: every other step and `zero_grad` is left out."""

    calls = [0]

    def only_at_the_end(zero: Any) -> Any:
        def some_zeros(self: Any, *args: Any, **kwargs: Any) -> None:
            if calls[0] % times == 0:
                zero(self, *args, **kwargs)

        return some_zeros

    def summing(optimizer: Any) -> None:
        step = type(optimizer).step

        def some_steps(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self is observer.optimizers[0]():  # of several, all that step before the first does again
                calls[0] += 1
            return step(self, *args, **kwargs) if calls[0] % times == 0 else None

        optimizer.step = some_steps.__get__(optimizer)

    observer.replace((torch.optim.Optimizer, "zero_grad"), only_at_the_end(torch.optim.Optimizer.zero_grad))
    observer.replace((nn.Module, "zero_grad"), only_at_the_end(nn.Module.zero_grad))
    observer.made.append(summing)
