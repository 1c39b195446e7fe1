"""The settings of the CUDA caching allocator, read from the strings that PyTorch reads.

Keys, defaults and limits are those of torch 2.14.1 (c10/core/AllocatorConfig.h and
c10/cuda/CUDAAllocatorConfig.h, each limit tried against the binary).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from memlens.errors import UsageError
from memlens.units import MIB

LARGE_SEGMENT_BYTES = 20 * MIB  # large_segment_size_ in AllocatorConfig.h; a constant before torch 2.11
ROUNDUP_INTERVALS = 16  # kRoundUpPowerOfTwoIntervals: 1 MiB, 2 MiB, ... 32 GiB and more
_MIN_LARGE_SEGMENT_MIB = 10  # kMinLargeAlloc; large_segment_size_mb must be above it

# Highest priority first. The comment in AllocatorConfig.h says the reverse; torch 2.13.0 and 2.14.1, asked
# with both set, take the whole string of the first and nothing of the second.
ENVIRONMENT = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@dataclass(frozen=True, slots=True)
class AllocatorConfig:
    """What PYTORCH_CUDA_ALLOC_CONF sets; the defaults are PyTorch's.

    `max_split_bytes` None splits blocks of any size. `roundup_power2_divisions` has one entry for each
    of the 16 intervals from 1 MiB, 0 meaning off. `notes` says what was read and has no effect here.

    >>> parse_config("expandable_segments:True,max_split_size_mb:128").max_split_bytes // MIB
    128
    """

    expandable_segments: bool = False
    max_split_bytes: int | None = None
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDUP_INTERVALS
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    per_process_memory_fraction: float = 1.0
    backend: str = "native"
    notes: tuple[str, ...] = ()


def parse_config(text: str) -> AllocatorConfig:
    """The settings in `text`, or one UsageError that names the key, the value and what PyTorch accepts.

    >>> parse_config("roundup_power2_divisions:[256:1,512:2,>:4]").roundup_power2_divisions[8:11]
    (1, 2, 4)
    """
    values: dict[str, Any] = {}
    notes: list[str] = []
    pairs = _split(text)
    # the large segment bounds two other keys, wherever it is in the string
    for key, value in sorted(pairs, key=lambda pair: pair[0] != "large_segment_size_mb"):
        if key in _IGNORED:
            notes.append(f"{key}: {_IGNORED[key]}")
        elif key in _READERS:
            _READERS[key](key, value, values)
        else:
            raise _unknown_key(key)
    if values.get("backend") == "cudaMallocAsync":
        notes.append("backend:cudaMallocAsync is not simulated; the native allocator's rules are used")
    return AllocatorConfig(**values, notes=tuple(notes))


def text_in(environ: Mapping[str, str]) -> str | None:
    """The settings' text in `environ`, by PyTorch's order of names; None where none is set.

    >>> text_in({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    'expandable_segments:True'
    """
    return next((environ[name] for name in ENVIRONMENT if environ.get(name)), None)


def from_environment(environ: Mapping[str, str]) -> AllocatorConfig:
    """The settings in `environ`, by PyTorch's order of names; the defaults where none is set.

    >>> from_environment({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}).expandable_segments
    True
    """
    variables = [(name, environ[name]) for name in ENVIRONMENT if environ.get(name)]
    if not variables:
        return AllocatorConfig()
    (name, text), *others = variables
    try:
        config = parse_config(text)
    except UsageError as error:
        raise UsageError(f"{name}={text!r}: {error.message}", hint=error.hint) from None
    ignored = [f"{other} is ignored: {name} takes precedence" for other, value in others if value != text]
    return replace(config, notes=(*config.notes, *ignored))


def from_snapshot(settings: Mapping[str, Any]) -> AllocatorConfig:
    """The settings that a torch snapshot recorded under `allocator_settings`.

    The string of the environment is read for the keys that have no entry of their own; what was set while
    the program ran is in those that have.
    """
    try:
        config = parse_config(str(settings.get("PYTORCH_CUDA_ALLOC_CONF") or ""))
    except UsageError as error:
        config = AllocatorConfig(notes=(f"PYTORCH_CUDA_ALLOC_CONF was not understood: {error.message}",))
    changes: dict[str, Any] = {}
    if isinstance(settings.get("expandable_segments"), bool):
        changes["expandable_segments"] = settings["expandable_segments"]
    limit = settings.get("max_split_size")
    if isinstance(limit, int):
        changes["max_split_bytes"] = limit if limit > 0 else None
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, dict) and len(divisions) == ROUNDUP_INTERVALS:
        table = tuple(divisions.values())
        if all(isinstance(count, int) and 0 <= count <= 64 for count in table):
            changes["roundup_power2_divisions"] = table
    return replace(config, **changes)


def to_snapshot(config: AllocatorConfig) -> dict[str, Any]:
    """The settings as a torch snapshot records them: the reverse of `from_snapshot`."""
    return {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": -1 if config.max_split_bytes is None else config.max_split_bytes,
        "garbage_collection_threshold": config.garbage_collection_threshold,
        "expandable_segments": config.expandable_segments,
        "roundup_power2_divisions": {
            str(1 << power): count for power, count in enumerate(config.roundup_power2_divisions)
        },
    }


def _split(text: str) -> list[tuple[str, str]]:
    """`key:value` pairs; commas inside [...] do not separate."""
    pairs, depth, start = [], 0, 0
    for position, character in enumerate(text + ","):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            pairs.append(text[start:position])
            start = position + 1
    if depth:
        raise UsageError(
            f"allocator settings {text!r}: a bracket is not closed",
            hint="lists are written as roundup_power2_divisions:[256:1,512:2,>:4]",
        )
    settings = []
    for pair in pairs:
        key, colon, value = ("".join(part.split()) for part in pair.partition(":"))
        if colon and value:
            settings.append((key, value))
        elif key in _READERS or key in _IGNORED:
            raise UsageError(f"allocator setting {key} has no value", hint=f"write {key}:VALUE")
        elif key:
            raise _unknown_key(key)
    return settings


def _unknown_key(key: str) -> UsageError:
    keys = [*_READERS, *_IGNORED]
    close = get_close_matches(key.partition("=")[0], keys, n=1)
    hint = f"did you mean {close[0]}:VALUE?" if close else "known keys: " + ", ".join(_READERS)
    return UsageError(f"unknown allocator setting {key!r}", hint=hint)


def _bad(key: str, value: str, accepted: str) -> UsageError:
    return UsageError(f"allocator setting {key}:{value} is not valid", hint=f"PyTorch accepts {accepted}")


def _whole(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise _bad(key, value, "a whole number")
    return int(value)


def _switch(key: str, value: str, values: dict[str, Any]) -> None:
    if value not in ("True", "False"):
        raise _bad(key, value, "True or False, spelled like that")
    values[key] = value == "True"


def _large_segment(key: str, value: str, values: dict[str, Any]) -> None:
    size = _whole(key, value)
    if size <= _MIN_LARGE_SEGMENT_MIB:
        raise _bad(key, value, f"more than {_MIN_LARGE_SEGMENT_MIB} MiB")
    values["large_segment_bytes"] = values["max_non_split_rounding_bytes"] = size * MIB


def _at_least_a_segment(field: str) -> Callable[[str, str, dict[str, Any]], None]:
    def read(key: str, value: str, values: dict[str, Any]) -> None:
        size, least = _whole(key, value) * MIB, values.get("large_segment_bytes", LARGE_SEGMENT_BYTES)
        if size < least:
            raise _bad(key, value, f"at least the size of a large segment, {least // MIB}")
        values[field] = size

    return read


def _fraction(key: str, value: str, values: dict[str, Any]) -> None:
    whole_range = key == "per_process_memory_fraction"
    accepted = "a number from 0.0 to 1.0" if whole_range else "a number between 0.0 and 1.0, both excluded"
    try:
        fraction = float(value)
    except ValueError:
        raise _bad(key, value, accepted) from None
    if not (0 <= fraction <= 1 if whole_range else 0 < fraction < 1):
        raise _bad(key, value, accepted)
    values[key] = fraction


def _backend(key: str, value: str, values: dict[str, Any]) -> None:
    if value not in ("native", "cudaMallocAsync"):
        raise _bad(key, value, "native or cudaMallocAsync")
    values[key] = value


def _divisions(key: str, value: str, values: dict[str, Any]) -> None:
    """One number for all sizes, or a list: each interval in MiB with its divisions, `>` for all above."""
    if not value.startswith("["):
        values[key] = (_power_of_two(key, value, value),) * ROUNDUP_INTERVALS
        return
    table = [0] * ROUNDUP_INTERVALS
    last, first = 0, True
    for item in value.strip("[]").split(","):
        interval, _, divisions = item.partition(":")
        count = 0 if divisions == "0" else _power_of_two(key, value, divisions)
        if interval == ">":
            table[last + 1 :] = [count] * (ROUNDUP_INTERVALS - last - 1)
            continue
        last = min(_power_of_two(key, value, interval).bit_length() - 1, ROUNDUP_INTERVALS - 1)
        if first:  # the first interval also holds for everything below it
            table[:last] = [count] * last
            first = False
        table[last] = count
    values[key] = tuple(table)


def _power_of_two(key: str, value: str, number: str) -> int:
    count = int(number) if number.isascii() and number.isdigit() else 0
    if count < 1 or count & (count - 1):
        raise _bad(key, value, "powers of two, such as 4 or [256:1,512:2,>:4]")
    return count


_READERS: dict[str, Callable[[str, str, dict[str, Any]], None]] = {
    "expandable_segments": _switch,
    "max_split_size_mb": _at_least_a_segment("max_split_bytes"),
    "garbage_collection_threshold": _fraction,
    "roundup_power2_divisions": _divisions,
    "large_segment_size_mb": _large_segment,
    "max_non_split_rounding_mb": _at_least_a_segment("max_non_split_rounding_bytes"),
    "per_process_memory_fraction": _fraction,
    "backend": _backend,
}

_HOST = "host memory only, no effect on the GPU"
_IGNORED = {
    "pinned_use_background_threads": _HOST,
    "pinned_use_cuda_host_register": _HOST,
    "pinned_use_hip_host_register": _HOST,
    "pinned_num_register_threads": _HOST,
    "pinned_reserve_segment_size_mb": _HOST,
    "pinned_max_round_threshold_mb": _HOST,
    "pinned_max_cached_size_mb": _HOST,
    "pinned_free_catch_all": _HOST,
    "release_lock_on_cudamalloc": "a matter of threads, no effect on memory",
    "release_lock_on_hipmalloc": "a matter of threads, no effect on memory",
    "graph_capture_record_stream_reuse": "CUDA graphs are not simulated",
    "throw_on_cudamalloc_oom": "changes when an error is raised, not how much fits",
}
