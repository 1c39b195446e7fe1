"""AdamW with 8-bit states: their memory, laid out as bitsandbytes does, without their kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

# bitsandbytes/optim/optimizer.py: a parameter with fewer elements keeps its states in fp32 (min_8bit_size),
# a larger one has a uint8 for each element and an fp32 scale (absmax) for each block of it. A block was 2048
# elements in its older versions and is 256 in those since 0.44; the smaller takes more.
SMALLEST_QUANTISED = 4096
BLOCK_ELEMENTS = 256
MAP_ENTRIES = 256  # fp32, one map for each state, shared by all parameters


class AdamW8bit(Optimizer):
    """Two states a parameter. The update itself is one kernel in place, which allocates nothing."""

    def __init__(self, params: Any, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})
        self._maps: tuple[torch.Tensor, ...] | None = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = self.states(parameter)

    def states(self, parameter: torch.Tensor) -> dict[str, Any]:
        """What is kept for one parameter, made at its first step."""
        device, count = parameter.device, parameter.numel()
        if count < SMALLEST_QUANTISED:
            return {f"state{n}": torch.zeros_like(parameter, dtype=torch.float32) for n in (1, 2)}
        if self._maps is None:
            self._maps = tuple(torch.zeros(MAP_ENTRIES, device=device) for _ in (1, 2))
        states: dict[str, Any] = {}
        for number in (1, 2):
            states[f"state{number}"] = torch.zeros_like(parameter, dtype=torch.uint8)
            states[f"qmap{number}"] = self._maps[number - 1]
        for number in (1, 2):
            states[f"absmax{number}"] = torch.zeros(-(-count // BLOCK_ELEMENTS), device=device)
        return states
