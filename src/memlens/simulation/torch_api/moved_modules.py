"""Modules that were moved to the simulated card get their weights and buffers back when it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping


class Moved:
    """What `module.cuda()` took the place of: a parameter's own data, and the buffers of a module."""

    def __init__(self) -> None:
        # neither keeps a parameter or module alive, as that would change when its device memory is freed
        self.parameters: MutableMapping[Tensor, tuple[Tensor, int]] = WeakIdKeyDictionary()
        self.buffers: WeakKeyDictionary[nn.Module, dict[str, Tensor]] = WeakKeyDictionary()
        # of a module compiled by TorchScript: C++ holds them, under a name
        self.compiled: WeakKeyDictionary[nn.Module, dict[str, Tensor]] = WeakKeyDictionary()

    def swap(self, parameter: Tensor, twin: Tensor) -> None:
        """The parameter gets the twin's data, and the twin keeps the parameter's for the end.

        Not torch.utils.swap_tensors: that gives the twin the parameter's attributes too, and refuses where a
        graph (weight_norm's, made with the module) or a weak reference knows the parameter.
        """
        self.parameters.setdefault(parameter, (twin, parameter._cdata))
        torch._C._swap_tensor_impl(parameter, twin)

    def replacements(self) -> dict[str, Any]:
        """Dotted names and their stand-ins."""
        apply = nn.Module._apply

        def remember_and_apply(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
            if isinstance(module, torch.jit.ScriptModule):
                return self.apply_to_compiled(module, *args, **kwargs)
            if module not in self.buffers:
                with torch._C.DisableTorchFunction():
                    buffers = module._buffers.items()
                    self.buffers[module] = {k: v for k, v in buffers if v is not None and not v.is_meta}
            return apply(module, *args, **kwargs)

        return {"torch.nn.Module._apply": remember_and_apply}

    def apply_to_compiled(
        self, module: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> nn.Module:
        """`module._apply` where C++ holds the tensors: each is put there anew."""
        for child in module.children() if recurse else ():
            self.apply_to_compiled(child, function)
        inside: Any = module._c
        with torch._C.DisableTorchFunction():
            named = dict((*module._parameters.items(), *module._buffers.items()))
        for name, tensor in named.items():
            if tensor is None:
                continue
            with torch.no_grad():
                moved = function(tensor)
            if moved is not tensor:
                self.compiled.setdefault(module, {}).setdefault(name, tensor)
                is_parameter = name in module._parameters
                inside.setattr(name, nn.Parameter(moved, tensor.requires_grad) if is_parameter else moved)
        return module

    def put_back(self) -> None:
        """When the simulation is over."""
        for module, tensors in list(self.compiled.items()):
            inside: Any = module._c
            for name, tensor in tensors.items():
                inside.setattr(name, tensor)
        for parameter, (twin, original) in list(self.parameters.items()):
            if parameter._cdata != original:
                torch._C._swap_tensor_impl(parameter, twin)
        for module, buffers in list(self.buffers.items()):
            for name, buffer in buffers.items():  # a scripted module's own kind of dict has no update
                if name in module._buffers:
                    module._buffers[name] = buffer
