"""PYTORCH_CUDA_ALLOC_CONF, read as PyTorch reads it; the limits were tried against torch 2.14.1."""

from __future__ import annotations

import pytest

from memlens.allocator import AllocatorConfig, from_environment, parse_config
from memlens.errors import UsageError
from memlens.units import MIB


def test_empty_is_the_default() -> None:
    """An empty string changes nothing."""
    assert parse_config("") == AllocatorConfig()


def test_several_keys_with_spaces_and_a_trailing_comma() -> None:
    """White space and a last comma are accepted, as PyTorch does."""
    config = parse_config(
        "max_split_size_mb: 128, garbage_collection_threshold:0.8,expandable_segments:True,"
    )
    assert config.max_split_bytes == 128 * MIB
    assert config.garbage_collection_threshold == 0.8
    assert config.expandable_segments


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("4", [4] * 16),
        ("[256:1,512:2,>:4]", [1] * 9 + [2] + [4] * 6),
        ("[64:8,128:2,256:4,512:2,1024:1,>:1]", [8] * 7 + [2, 4, 2] + [1] * 6),
        ("[256:2,512:4]", [2] * 9 + [4] + [0] * 6),
        ("[>:8]", [0] + [8] * 15),
        ("[512:2,256:4,>:8]", [2] * 8 + [4] + [8] * 7),
        ("[131072:2]", [2] * 16),
        ("[256:2,>:4,2048:8]", [2] * 9 + [4, 4, 8] + [4] * 4),
    ],
)
def test_roundup_divisions_table(text: str, table: list[int]) -> None:
    """Each table is what torch 2.14.1's own roundup_power2_divisions(size) returned for the string."""
    assert list(parse_config(f"roundup_power2_divisions:{text}").roundup_power2_divisions) == table


@pytest.mark.parametrize(
    "text",
    [
        "large_segment_size_mb:10",
        "max_split_size_mb:19",
        "max_split_size_mb:32,large_segment_size_mb:64",
        "large_segment_size_mb:64,max_split_size_mb:32",
        "max_non_split_rounding_mb:19",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:nan",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:[256:1,512:3,>:4]",
        "roundup_power2_divisions:[255:1,>:4]",
        "roundup_power2_divisions:[256:1,512:2",
        "expandable_segments:true",
        "expandable_segment:True",
        "backend:foo",
        "per_process_memory_fraction:1.5",
        "max_split_size_mb:abc",
        "max_split_size_mb:",
        "max_split_size_mb",
        "max_split_size_mb=128",
    ],
)
def test_what_pytorch_refuses_is_one_usage_error(text: str) -> None:
    """Each of these strings makes torch 2.14.1 raise; here it is a UsageError with a way out."""
    with pytest.raises(UsageError) as error:
        parse_config(text)
    assert error.value.hint


def test_unknown_key_names_the_nearest() -> None:
    """A misspelled key gets the key that was meant."""
    with pytest.raises(UsageError, match="'expandable_segment'") as error:
        parse_config("expandable_segment:True")
    assert error.value.hint == "did you mean expandable_segments:VALUE?"


def test_keys_without_effect_are_noted() -> None:
    """Pinned-memory keys are accepted and said to have no effect on the GPU."""
    config = parse_config("pinned_num_register_threads:8,backend:cudaMallocAsync")
    assert len(config.notes) == 2
    assert config.notes[0].startswith("pinned_num_register_threads")


def test_environment_names_and_their_order() -> None:
    """With both set, torch 2.14.1 takes PYTORCH_CUDA_ALLOC_CONF alone; the loser is mentioned."""
    environ = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64",
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:32",
    }
    config = from_environment(environ)
    assert config.max_split_bytes == 64 * MIB
    assert config.notes == ("PYTORCH_ALLOC_CONF is ignored: PYTORCH_CUDA_ALLOC_CONF takes precedence",)
    assert from_environment({}) == AllocatorConfig()


def test_a_bad_environment_names_the_variable() -> None:
    """The error says which variable to correct."""
    with pytest.raises(UsageError, match="PYTORCH_CUDA_ALLOC_CONF='nonsense'"):
        from_environment({"PYTORCH_CUDA_ALLOC_CONF": "nonsense"})
