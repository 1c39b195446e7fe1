"""What was seen of a model while it ran: its blocks and their work, its head, its activations."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from memlens.advice.attention_switch import attention_switch
from memlens.advice.blocks import checkpointing_kind, find_blocks
from memlens.advice.shims.lora import columns
from memlens.simulation.core.tensors_in import tensors_in

# with fewer scores a row, logits are small compared with what makes them
LARGE_VOCABULARY = 8192
BATCH_NORMS = nn.modules.batchnorm._BatchNorm
IN_PLACE = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.Hardtanh, nn.Threshold, nn.Dropout)


class ModelObservation:
    """What the first step's forward shows of a model. Made before the model runs; gets every operator.

    Hooks are those of the simulation's own copy of the model, which goes with it.
    """

    def __init__(self, sim: Any, model: nn.Module, rows: int | None = None) -> None:
        self.sim, self.model, self.rows = sim, model, rows
        self.flops: Counter[str] = Counter()
        self.unsafe: set[str] = set()
        self.logits_of = ""
        self._runs = False
        self._overwritten: dict[int, tuple[Any, str]] = {}  # storages that an activation would overwrite
        self._read: dict[int, Any] = {}
        self._in_activation = False
        self._made_by: dict[int, tuple[Any, str]] = {}
        for path, module in model.named_modules():
            if isinstance(module, IN_PLACE) and not module.inplace:
                module.register_forward_pre_hook(self._before_activation(path))
                module.register_forward_hook(self._activation)
            if isinstance(module, nn.Linear) and module.out_features >= LARGE_VOCABULARY:
                module.register_forward_hook(self._scores(path))
        model.register_forward_pre_hook(self._begins)
        model.register_forward_hook(self._finished)

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        sim = self.sim
        if not self._runs or sim.step > 1 or sim.phase != "forward":
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

    def _begins(self, module: nn.Module, args: Any) -> None:
        self._runs = True

    def _before_activation(self, path: str) -> Any:
        """An activation may overwrite its input if no other operator reads it or saves it for backward."""

        def hook(module: nn.Module, args: Any) -> None:
            with torch._C.DisableTorchFunction():
                entry = self.sim.ledger.of(args[0]) if args else None
                self._in_activation = True
                if (
                    entry is None
                    or id(entry) in self._read
                    or args[0].is_leaf
                    or is_saved_by_its_operator(args[0])
                ):
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
        self._runs = False
        with torch._C.DisableTorchFunction():
            for tensor in tensors_in(output):
                entry = self.sim.ledger.of(tensor)
                if id(entry) in self._made_by and tensor.ndim == 3:
                    self.logits_of = self._made_by[id(entry)][1]
            self._overwritten.clear()
            self._read.clear()

    def facts(self) -> dict[str, Any]:
        """What there is to change about the model, in plain values; names are those of `TargetFacts`."""
        model = self.model
        named = dict(model.named_modules())
        paths = find_blocks(model)
        parameters = list(model.parameters())
        with_weights = [p for p, m in named.items() if any(True for _ in m.parameters(recurse=False))]
        return {
            "rows": self.rows,
            "dtype": str(next((p.dtype for p in parameters if p.is_floating_point()), torch.float32))
            .removeprefix("torch."),
            "blocks": [(path, sum_under(self.flops, path)) for path in paths],
            "flops": sum(self.flops.values()),
            "checkpointing": checkpointing_kind(model, paths),
            "has_batch_norm": any(isinstance(m, BATCH_NORMS) for m in named.values()),
            "blocks_have_batch_norm": any(
                isinstance(m, BATCH_NORMS) for p in paths for m in named[p].modules()
            ),
            "has_convolution": any(isinstance(m, nn.Conv2d) for m in named.values())
            and all(p.ndim < 5 for p in parameters),  # torch has no channels_last for volumes
            "attention": attention_switch(model),
            "keeps_cache": bool(getattr(getattr(model, "config", None), "use_cache", False)),
            "in_place": [
                p for p, m in named.items()
                if isinstance(m, IN_PLACE) and not m.inplace and p not in self.unsafe
            ],
            "linears": sum(columns(m) is not None for m in named.values()),
            "parameters": sum(p.numel() for p in parameters),
            "trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "last_layer": with_weights[-1] if with_weights else "",
        }  # fmt: skip


def sum_under(sizes: dict[str, int], path: str) -> int:
    """The sum of what belongs to the module at `path` and those inside it."""
    return sum(size for name, size in sizes.items() if name == path or name.startswith(path + "."))


def is_saved_by_its_operator(tensor: torch.Tensor) -> bool:
    """Whether the operator that made `tensor` keeps it for its own backward, as ReLU and exp do."""
    node = tensor.grad_fn
    kept = [getattr(node, name, None) for name in dir(node) if name.startswith("_saved_")]
    mine = tensor.untyped_storage()._cdata
    return any(isinstance(t, torch.Tensor) and t.untyped_storage()._cdata == mine for t in kept)
