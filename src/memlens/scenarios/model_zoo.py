"""Models of timm, torchvision and transformers by name. Nothing is ever downloaded: weights do not matter
for memory, and a config that is not on this machine is an error that says so.

Each finder imports its library and checks the name at once; what it returns builds the model, later and
inside the simulation.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from memlens.errors import TargetError, UsageError
from memlens.model import Assumption
from memlens.scenarios.constructor_names import unknown
from memlens.scenarios.inputs import InputSpec
from memlens.scenarios.user_frames import last_line

Inputs = Callable[[int | None, bool], tuple[InputSpec, ...]]
Found = tuple[nn.Module, Inputs, tuple[Assumption, ...]]
Build = Callable[[], Found]

# the length of a sample when neither --seq-len nor the model gives one
DEFAULT_SEQUENCE = 1024


def require(library: str, target: str) -> Any:
    """The library, or the error that says how to install it."""
    try:
        return importlib.import_module(library)
    except ImportError as problem:
        if problem.name != library:
            raise TargetError(f"{library} does not import: {last_line(problem)}") from problem
        error = f"{target} needs {library}, which is not installed"
        raise TargetError(error, hint=f"pip install {library}") from problem


def _made(name: str, make: Callable[[], nn.Module]) -> nn.Module:
    try:
        return make()
    except Exception as problem:
        raise TargetError(f"{name} could not be built: {last_line(problem)}") from problem


def _images(shape: tuple[int, ...], source: str) -> tuple[Inputs, tuple[Assumption, ...]]:
    size = "x".join(map(str, shape))
    note = Assumption(f"images of {size}", f"{source}; --input sets another size")

    def inputs(seq_len: int | None, training: bool) -> tuple[InputSpec, ...]:
        if seq_len is not None:
            raise UsageError(f"--seq-len {seq_len} has no meaning for images", hint="--input sets their size")
        return (InputSpec(shape),)

    return inputs, (note,)


def from_timm(name: str, arguments: dict[str, Any]) -> Build:
    """`timm:NAME`: any model of timm, without weights, at its own input size."""
    timm = require("timm", f"timm:{name}")
    if name not in timm.list_models():
        raise unknown("timm model", name, timm.list_models())

    def build() -> Found:
        model = _made(f"timm:{name}", lambda: timm.create_model(name, pretrained=False, **arguments))
        return (model, *_images(_timm_shape(model, arguments), "the size that timm names for this model"))

    return build


def _timm_shape(model: nn.Module, arguments: dict[str, Any]) -> tuple[int, ...]:
    config = getattr(model, "pretrained_cfg", None) or {}
    channels, *size = config.get("input_size") or (3, 224, 224)
    given = arguments.get("img_size")
    if given is not None:
        size = list(given) if isinstance(given, (tuple, list)) else [given, given]
    return (arguments.get("in_chans", channels), *size)


def from_torchvision(name: str, arguments: dict[str, Any]) -> Build:
    """`torchvision:NAME`: any model of torchvision, without weights, at the size of its best weights."""
    require("torchvision", f"torchvision:{name}")
    models = importlib.import_module("torchvision.models")
    if name not in models.list_models():
        raise unknown("torchvision model", name, models.list_models())
    crop = 224
    weights = next(iter(models.get_model_weights(name)), None)
    if weights is not None:
        sizes = getattr(weights.transforms(), "crop_size", None) or [crop]
        crop = sizes[-1]

    def build() -> Found:
        model = _made(f"torchvision:{name}", lambda: models.get_model(name, weights=None, **arguments))
        return (model, *_images((3, crop, crop), "the size that torchvision's weights take"))

    return build


def from_transformers(name: str, arguments: dict[str, Any]) -> Build:
    """`hf:config.json`, `hf:folder` or `hf:id` (from the local cache): a transformers model by its config."""
    transformers = require("transformers", f"hf:{name}")
    how = {key: arguments.pop(key) for key in _IMPLEMENTATIONS if key in arguments}
    config = _config(transformers, name, arguments)
    cls = _model_class(transformers, config)

    def inputs(seq_len: int | None, training: bool) -> tuple[InputSpec, ...]:
        return hf_inputs(config, cls, seq_len, training)

    why = "batches are taken as full; a mask adds a copy of itself"
    note = Assumption(f"{cls.__name__}, no padding mask", why)
    return lambda: (_made(f"hf:{name}", lambda: _instantiate(cls, config, how)), inputs, (note,))


# not settings of a config, but of how a model is made from one: `--model-arg attn_implementation=eager`
_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")


def _instantiate(cls: Any, config: Any, how: dict[str, Any]) -> nn.Module:
    make = getattr(cls, "_from_config", None) or cls  # not public, but what `AutoModel.from_config` calls
    model: nn.Module = make(config, **how)
    return model


def _config(transformers: Any, name: str, arguments: dict[str, Any]) -> Any:
    path = Path(name)
    looks_local = path.exists() or name.endswith(".json") or name.startswith((".", "/", "~"))
    if looks_local and not path.expanduser().exists():
        raise TargetError(f"there is no file or folder {name}")
    if path.is_dir() and not (path / "config.json").exists():
        raise TargetError(f"there is no config.json in {name}")
    source = str(path.expanduser()) if looks_local else name
    try:
        config = transformers.AutoConfig.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError, KeyError) as problem:
        if looks_local:
            raise TargetError(f"{name} is not a config of transformers: {last_line(problem)}") from problem
        raise TargetError(
            f"the config of {name!r} is not in the local cache, and memlens does not download",
            hint=f"fetch it once with `hf download {name} config.json`, or name a config.json",
        ) from problem
    for key, value in arguments.items():
        if not hasattr(config, key):
            raise unknown(f"setting of {type(config).__name__}", key, config.to_dict())
        setattr(config, key, value)
    return config


def _model_class(transformers: Any, config: Any) -> Any:
    """The class that the config names; a language model's where it names none."""
    for architecture in getattr(config, "architectures", None) or ():
        model_class = getattr(transformers, architecture, None)
        if model_class is not None:
            return model_class
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if type(config) in auto._model_mapping:
            return auto._model_mapping[type(config)]
    raise TargetError(f"transformers has no model for a {type(config).__name__}")


def hf_inputs(config: Any, cls: Any, seq_len: int | None, training: bool) -> tuple[InputSpec, ...]:
    """What a transformers model of class `cls` is fed, and its labels in training.

    Token numbers, images of the size that the config names, or the spectrogram of a speech model. Raises
    UsageError for a model whose inputs the config does not tell.
    """
    main = getattr(cls, "main_input_name", "input_ids")
    if seq_len is not None and main != "input_ids":
        raise UsageError(f"--seq-len {seq_len} has no meaning for {main}", hint="--input sets its shape")
    if hasattr(config, "vision_config") and hasattr(config, "text_config"):
        raise UsageError(
            f"{cls.__name__} takes images and text",
            hint="pass both: --input input_ids=int64:77 --input pixel_values=3x224x224",
        )
    shape, labels = _MAIN_INPUTS.get(main, _unknown_input)(config, cls, seq_len)
    dtype = torch.int64 if main == "input_ids" else None
    specs = (InputSpec(shape, dtype, main),)
    if training:
        return (*specs, *labels)
    if getattr(config, "is_encoder_decoder", False):  # the decoder reads what it would learn
        return (*specs, *(InputSpec(label.shape, label.dtype, "decoder_input_ids") for label in labels))
    return specs


Shape = tuple[int, ...]


def _tokens(config: Any, cls: Any, seq_len: int | None) -> tuple[Shape, list[InputSpec]]:
    length = _length(getattr(config, "get_text_config", lambda: config)(), seq_len)
    return (length,), _text_labels(cls.__name__, length)


def _pixels(config: Any, cls: Any, seq_len: int | None) -> tuple[Shape, list[InputSpec]]:
    size = getattr(config, "image_size", None)
    if size is None or not cls.__name__.endswith(("ForImageClassification", "Model")):
        return _unknown_input(config, cls, seq_len)
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    labels = [InputSpec((), torch.int64, "labels")] if "Classification" in cls.__name__ else []
    return (getattr(config, "num_channels", 3), height, width), labels


def _spectrogram(config: Any, cls: Any, seq_len: int | None) -> tuple[Shape, list[InputSpec]]:
    # the encoder halves the length before it adds positions (transformers, modeling_whisper.py)
    shape = (config.num_mel_bins, 2 * config.max_source_positions)
    return shape, [InputSpec((config.max_target_positions,), torch.int64, "labels")]


def _unknown_input(config: Any, cls: Any, seq_len: int | None) -> tuple[Shape, list[InputSpec]]:
    main = getattr(cls, "main_input_name", "its input")
    raise UsageError(
        f"the config does not say how large {main} of {cls.__name__} is",
        hint=f"pass the shape of one sample, and labels if it trains: --input {main}=3x512x512",
    )


_MAIN_INPUTS = {"input_ids": _tokens, "pixel_values": _pixels, "input_features": _spectrogram}


def _text_labels(kind: str, length: int) -> list[InputSpec]:
    if kind.endswith("ForSequenceClassification"):
        return [InputSpec((), torch.int64, "labels")]
    if kind.endswith("ForQuestionAnswering"):
        return [InputSpec((), torch.int64, f"{end}_positions") for end in ("start", "end")]
    if kind.endswith(("LMHeadModel", "ForTokenClassification", "ForConditionalGeneration")) or "LM" in kind:
        return [InputSpec((length,), torch.int64, "labels")]
    return []


def _length(config: Any, seq_len: int | None) -> int:
    named = (getattr(config, key, None) for key in ("max_position_embeddings", "n_positions"))
    longest = next((n for n in named if isinstance(n, int) and n > 0), None)
    if seq_len is None:
        return min(DEFAULT_SEQUENCE, longest) if longest else DEFAULT_SEQUENCE
    absolute = (
        getattr(config, "rope_parameters", None) is None and getattr(config, "rope_theta", None) is None
    )
    if longest and seq_len > longest and absolute:
        raise UsageError(f"--seq-len {seq_len} is longer than the {longest} positions of the model")
    return seq_len


SCHEMES: dict[str, Callable[[str, dict[str, Any]], Build]] = {
    "timm": from_timm,
    "torchvision": from_torchvision,
    "hf": from_transformers,
}

# transformers asks the network for much more than the config unless it is told not to
os.environ.setdefault("HF_HUB_OFFLINE", "1")
