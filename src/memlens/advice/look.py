"""Looks at a model while the scenario runs as it is: its blocks, its head, its attention, its activations."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from memlens.advice.blocks import checkpointing_kind, find_blocks
from memlens.advice.facts import Block, Facts, Head
from memlens.advice.shims.lora import columns
from memlens.advice.switches import attention_switch
from memlens.devices import Gpu
from memlens.model import Alloc, Category, Free, Trace
from memlens.scenarios.prediction import Prediction
from memlens.scenarios.scenario import Scenario
from memlens.scenarios.training import Prepared
from memlens.simulation.nested import tensors_in

# below this many scores a row, logits are small beside what makes them
LARGE_VOCABULARY = 8192
BATCH_NORMS = nn.modules.batchnorm._BatchNorm
IN_PLACE = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.Hardtanh, nn.Threshold, nn.Dropout)


class Look:
    """Called with the model on the device before it runs; `facts()` afterwards.

    It sees every operator of the first step's forward. Hooks are those of the simulation's own copy of the
    model, which goes with it.
    """

    def __init__(self) -> None:
        self.sim: Any = None
        self.model: nn.Module = nn.Identity()
        self.prepared: Prepared | None = None
        self.flops: Counter[str] = Counter()
        self.unsafe: set[str] = set()
        self.logits_of = ""
        self._overwritten: dict[int, tuple[Any, str]] = {}  # storages that an activation would overwrite
        self._read: dict[int, Any] = {}
        self._in_activation = False
        self._made_by: dict[int, tuple[Any, str]] = {}

    def __call__(self, sim: Any, prepared: Prepared) -> None:
        self.sim, self.prepared, self.model = sim, prepared, prepared.model
        sim.watch = self._operator
        for path, module in self.model.named_modules():
            if isinstance(module, IN_PLACE) and not module.inplace:
                module.register_forward_pre_hook(self._before_activation(path))
                module.register_forward_hook(self._activation)
            if isinstance(module, nn.Linear) and module.out_features >= LARGE_VOCABULARY:
                module.register_forward_hook(self._scores(path))
        self.model.register_forward_hook(self._finished)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        sim = self.sim
        if sim.step > 1 or sim.phase != "forward":
            return
        count = flop_registry.get(func._overloadpacket)
        if count is not None and sim.attribution.modules:
            self.flops[sim.attribution.modules[-1][0]] += count(*args, **kwargs, out_val=out)
        if self._in_activation:
            return
        for tensor in tensors_in([*args, *kwargs.values()]):
            entry = sim.ledger.of(tensor)
            if entry is not None:
                self._read[id(entry)] = entry
                if id(entry) in self._overwritten:
                    self.unsafe.add(self._overwritten[id(entry)][1])

    def _before_activation(self, path: str) -> Any:
        """An activation may overwrite its input if nobody has read it, reads it later, or keeps it."""

        def hook(module: nn.Module, args: Any) -> None:
            with torch._C.DisableTorchFunction():
                entry = self.sim.ledger.of(args[0]) if args else None
                self._in_activation = True
                if entry is None or id(entry) in self._read or args[0].is_leaf or keeps_result(args[0]):
                    self.unsafe.add(path)
                if entry is not None and self.sim.step <= 1:
                    self._overwritten[id(entry)] = (entry, path)

        return hook

    def _activation(self, module: nn.Module, args: Any, output: Any) -> None:
        self._in_activation = False

    def _scores(self, path: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            with torch._C.DisableTorchFunction():
                entry = self.sim.ledger.of(output)
                self._made_by[id(entry)] = (entry, path)

        return hook

    def _finished(self, module: nn.Module, args: Any, output: Any) -> None:
        with torch._C.DisableTorchFunction():
            for tensor in tensors_in(output):
                entry = self.sim.ledger.of(tensor)
                if id(entry) in self._made_by and tensor.ndim == 3:
                    self.logits_of = self._made_by[id(entry)][1]
            self._overwritten.clear()
            self._read.clear()

    def facts(self, scenario: Scenario, base: Prediction, gpu: Gpu) -> Facts:
        """What was seen, once the run is over."""
        assert self.prepared is not None
        model, prepared = self.model, self.prepared
        named = dict(model.named_modules())
        paths, kept = find_blocks(model), kept_by_module(base.trace)
        parameters = list(model.parameters())
        with_weights = [p for p, m in named.items() if any(True for _ in m.parameters(recurse=False))]
        return Facts(
            scenario=scenario, base=base, gpu=gpu, dtype=prepared.dtype,
            blocks=tuple(Block(p, _under(kept, p), _under(self.flops, p)) for p in paths),
            flops=sum(self.flops.values()),
            kept_bytes=sum(kept.values()),
            checkpointing=checkpointing_kind(model, paths),
            has_batch_norm=any(isinstance(m, BATCH_NORMS) for m in named.values()),
            blocks_have_batch_norm=any(isinstance(m, BATCH_NORMS) for p in paths for m in named[p].modules()),
            has_convolution=any(isinstance(m, nn.Conv2d) for m in named.values())
            and all(p.ndim < 5 for p in parameters),  # torch has no channels_last for volumes
            fixed_batch=any(spec.batched for spec in prepared.specs),
            attention=attention_switch(model),
            keeps_cache=bool(getattr(getattr(model, "config", None), "use_cache", False)),
            in_place=tuple(
                p for p, m in named.items()
                if isinstance(m, IN_PLACE) and not m.inplace and p not in self.unsafe
            ),
            linears=sum(columns(m) is not None for m in named.values()),
            parameters=sum(p.numel() for p in parameters),
            trainable=sum(p.numel() for p in parameters if p.requires_grad),
            last_layer=with_weights[-1] if with_weights else "",
            head=self._head(named),
        )  # fmt: skip

    def _head(self, named: dict[str, nn.Module]) -> Head | None:
        assert self.prepared is not None
        loss = self.prepared.objective.name
        if not self.logits_of or loss not in ("cross_entropy", "output.loss"):
            return None
        inside = loss == "output.loss"
        if inside and not hasattr(self.model, "loss_function"):
            return None
        return Head(self.logits_of, named[self.logits_of].out_features, inside)


def _under(sizes: dict[str, int], path: str) -> int:
    return sum(size for name, size in sizes.items() if name == path or name.startswith(path + "."))


def kept_by_module(trace: Trace) -> dict[str, int]:
    """Bytes that forward of the last step left for its backward, by the module that made them."""
    starts = [mark.index for mark in trace.marks if mark.name == "backward"]
    if not starts:
        return {}
    kept: defaultdict[str, int] = defaultdict(int)
    living: dict[int, Alloc] = {}
    for event in trace.events[: starts[-1]]:
        if isinstance(event, Alloc) and event.category is Category.ACTIVATION:
            living[event.id] = event
        elif isinstance(event, Free):
            living.pop(event.id, None)
    for alloc in living.values():
        kept[alloc.site.module or ""] += alloc.bytes
    return kept


def keeps_result(tensor: torch.Tensor) -> bool:
    """Whether the operator that made `tensor` keeps it for its own backward, as ReLU and exp do."""
    node = tensor.grad_fn
    kept = [getattr(node, name, None) for name in dir(node) if name.startswith("_saved_")]
    mine = tensor.untyped_storage()._cdata
    return any(isinstance(t, torch.Tensor) and t.untyped_storage()._cdata == mine for t in kept)
