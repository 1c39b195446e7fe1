"""The allocator's pure rules, each against a value of PyTorch."""

from __future__ import annotations

import pytest

from memlens.allocator import AllocatorConfig, parse_config
from memlens.allocator.rules import page_bytes, round_request, segment_bytes, should_split
from memlens.units import GIB, MIB

DEFAULT = AllocatorConfig()


@pytest.mark.parametrize(
    ("requested", "rounded"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (3 * MIB + 1, 3 * MIB + 512)]
)
def test_requests_are_rounded_to_512_bytes(requested: int, rounded: int) -> None:
    """Every size is a multiple of 512 bytes, at least one of them."""
    assert round_request(requested, DEFAULT) == rounded


@pytest.mark.parametrize(
    ("requested", "rounded"),
    [
        (1200, 1536),
        (2000, 2048),
        (2049, 2560),
        (1300 * 1024, 1280 * 1024 + 256 * 1024),
        (MIB, MIB),
        (600, 1024),
    ],
)
def test_four_divisions_between_powers_of_two(requested: int, rounded: int) -> None:
    """With 4 divisions, sizes above 2,048 step by a quarter of the power of two below; others by 512."""
    assert round_request(requested, parse_config("roundup_power2_divisions:4")) == rounded


def test_divisions_by_interval() -> None:
    """The list form rounds 300 MiB in one division less finely than 3 GiB in four; 1 means off."""
    config = parse_config("roundup_power2_divisions:[256:1,512:2,>:4]")
    assert round_request(300 * MIB, config) == 300 * MIB
    assert round_request(600 * MIB, config) == 768 * MIB
    assert round_request(3 * GIB + 1, config) == 3 * GIB + GIB // 2


@pytest.mark.parametrize(
    ("size", "segment"),
    [(512, 2), (MIB, 2), (MIB + 512, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (10 * MIB + 512, 12)],
)
def test_segment_sizes(size: int, segment: int) -> None:
    """2 MiB for up to 1 MiB, 20 MiB below 10 MiB, then the size rounded up to 2 MiB."""
    assert segment_bytes(size, DEFAULT) == segment * MIB


def test_large_segment_is_a_setting() -> None:
    """large_segment_size_mb:64 changes the shared segment, not the one made to measure."""
    config = parse_config("large_segment_size_mb:64")
    assert segment_bytes(5 * MIB, config) == 64 * MIB
    assert segment_bytes(12 * MIB, config) == 12 * MIB
    assert page_bytes(False, config) == 64 * MIB
    assert page_bytes(True, config) == 2 * MIB


@pytest.mark.parametrize(
    ("remaining", "small", "settings", "split"),
    [
        (512, True, "", True),
        (MIB, False, "", False),
        (MIB + 512, False, "", True),
        (512, False, "expandable_segments:True", True),
        (50 * MIB, False, "max_split_size_mb:20", False),
    ],
)
def test_split_rule(remaining: int, small: bool, settings: str, split: bool) -> None:
    """The small pool keeps any rest, the large pool one above 1 MiB and only below max_split_size."""
    assert should_split(remaining, 30 * MIB, small, parse_config(settings)) is split
