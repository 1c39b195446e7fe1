"""The allocator's settings, where the program itself makes them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def reserved_mib() -> int:
    """30 and 50 MiB that go, then 80: two segments and a third, or one that grows where segments expand."""
    first = torch.empty(30 * MIB, dtype=torch.int8, device="cuda")
    second = torch.empty(50 * MIB, dtype=torch.int8, device="cuda")
    del first, second
    torch.empty(80 * MIB, dtype=torch.int8, device="cuda")
    return torch.cuda.memory_reserved() // MIB


def test_without_settings_a_third_segment_is_needed() -> None:
    """Neither free segment has 80 MiB."""
    with memlens.simulate("T4"):
        assert reserved_mib() == 160


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_environment_is_read_at_the_first_allocation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As scripts do it: `os.environ[...] = ...` before the first tensor comes to the card."""
    with memlens.simulate("T4"):
        monkeypatch.setenv(name, "expandable_segments:True")
        assert reserved_mib() == 80


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set after the first allocation comes too late, as with PyTorch."""
    with memlens.simulate("T4"):
        torch.empty(1, device="cuda")
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        assert reserved_mib() == 162  # with the small segment of the first tensor


def test_settings_made_by_a_call_hold_at_once() -> None:
    """`torch.cuda.memory._set_allocator_settings`, before the first tensor."""
    with memlens.simulate("T4"):
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        assert reserved_mib() == 80
