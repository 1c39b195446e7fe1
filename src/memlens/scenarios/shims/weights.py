"""Pretrained weights: what matters for memory is their shape, so none are read or fetched."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from memlens.scenarios.shims.no_weights import NoWeights
from memlens.scenarios.shims.read_ahead import ahead, has_read_ahead, reading_ahead
from memlens.scenarios.shims.registry import Shims, shim

WHY = "weights are not read or fetched: their values do not matter for memory"


@shim("torch")
def urls(shims: Shims, torch: ModuleType) -> dict[str, Any]:
    """`torch.hub.load_state_dict_from_url` fetches nothing; `load_state_dict` takes that for any weights."""
    load = torch.nn.Module.load_state_dict
    load_optimizer, load_scaler = torch.optim.Optimizer.load_state_dict, torch.amp.GradScaler.load_state_dict

    def from_url(url: str, *args: Any, **kwargs: Any) -> NoWeights:
        shims.say(f"the weights of {url} are taken as random", WHY)
        return NoWeights()

    def load_state_dict(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        # a script that renames its keys makes an empty dictionary of none
        if isinstance(state_dict, NoWeights) or (not state_dict and NoWeights.was_made):
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return load(self, state_dict, *args, **kwargs)

    def unless_absent(real: Any) -> Any:
        """The first step makes the state of an optimizer, as training anew does."""
        return lambda self, state: None if isinstance(state, NoWeights) else real(self, state)

    return {
        "hub.load_state_dict_from_url": from_url,
        "nn.Module.load_state_dict": load_state_dict,
        "optim.Optimizer.load_state_dict": unless_absent(load_optimizer),
        "amp.GradScaler.load_state_dict": unless_absent(load_scaler),
    }


@shim("torchvision.models._api")
def torchvision(shims: Shims, api: ModuleType) -> dict[str, Any]:
    """`weights=...DEFAULT` of torchvision."""

    def get_state_dict(self: Any, *args: Any, **kwargs: Any) -> NoWeights:
        shims.say(f"torchvision's weights {self} are taken as random", WHY)
        return NoWeights()

    return {"WeightsEnum.get_state_dict": get_state_dict}


@shim("timm.models._builder")
def timm(shims: Shims, builder: ModuleType) -> dict[str, Any]:
    """`pretrained=True` of timm."""

    def load_pretrained(model: Any, *args: Any, **kwargs: Any) -> None:
        shims.say("timm's pretrained weights are taken as random", WHY)

    return {"load_pretrained": load_pretrained}


@shim("transformers.modeling_utils")
def transformers(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`from_pretrained` of transformers' models: from the config alone, quantised if asked."""

    def from_pretrained(
        cls: Any, /, name: Any, *args: Any, config: Any = None, dtype: Any = None, torch_dtype: Any = None,
        quantization_config: Any = None, device_map: Any = None, attn_implementation: Any = None, **rest: Any,
    ) -> Any:  # fmt: skip
        import torch

        shims.say(f"the weights of {name} are taken as random", WHY)
        if config is None:
            config = cls.config_class.from_pretrained(name, local_files_only=True)
        dtype = dtype or torch_dtype
        dtype = getattr(config, "dtype", None) if dtype in (None, "auto") else dtype
        dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        options = {"attn_implementation": attn_implementation} if attn_implementation else {}
        model = cls._from_config(config, dtype=dtype or torch.float32, **options)
        if quantization_config is not None:
            model = quantised(model, quantization_config)
        return (model if device_map is None else loaded(model, shims.sim)).eval()

    return {"PreTrainedModel.from_pretrained": classmethod(from_pretrained)}


def loaded(model: Any, sim: Any) -> Any:
    """To the device as transformers does it (`caching_allocator_warmup`): room for all weights, then each."""
    import torch

    sizes = (p.numel() // 2 if type(p).__name__ == "Params4bit" else p.nbytes for p in model.parameters())
    room = torch.empty(sum(sizes) // 2, dtype=torch.float16, device="cuda")
    del room
    if not has_read_ahead(sys.modules["transformers"].__version__):
        return model.to("cuda")
    with reading_ahead(sim, ahead(model)):
        return model.to("cuda")


def quantised(model: Any, config: Any) -> Any:
    """Linear layers as bitsandbytes keeps them; they take their size when they reach the device."""
    from transformers.integrations import replace_with_bnb_linear

    kept = config.llm_int8_skip_modules or ["lm_head"]
    model = replace_with_bnb_linear(model, modules_to_not_convert=kept, quantization_config=config)
    model.is_loaded_in_4bit = bool(getattr(config, "load_in_4bit", False))
    model.is_loaded_in_8bit = bool(getattr(config, "load_in_8bit", False))
    model.config.quantization_config = config
    return model
