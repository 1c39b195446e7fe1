"""Tensors that another stream uses: when their blocks may be used again is not known."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def copies(*, waits: bool, records: bool = True) -> tuple[int, int]:
    """What the assumption on `record_stream` says: two tensors of 40 MiB, one after the other."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        side = torch.cuda.Stream()
        for _ in range(2):
            x = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
            if records:
                x.record_stream(side)
            del x
            if waits:
                torch.cuda.synchronize()
    told = [a for a in sim.trace.assumptions if "record_stream" in a.what]
    assert len(told) == records
    assert sim.trace.timeline().peak_reserved_bytes == 40 * MIB
    return (told[0].low_bytes, told[0].high_bytes) if told else (0, 0)


def test_a_block_may_wait_until_the_host_does() -> None:
    """The second tensor takes the first one's block, if the other stream is done; else 40 MiB of its own."""
    assert copies(waits=False) == (0, 40 * MIB)
    assert copies(waits=True) == (0, 0)
    assert copies(waits=False, records=False) == (0, 0)


def test_reading_a_value_is_waiting() -> None:
    """`.item()` and copies to the host return when the device is done."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.zeros((), device="cuda")
        before = len(sim.recorded.waits)
        x.item()
        assert len(sim.recorded.waits) == before + 1
        x.cpu()
        assert len(sim.recorded.waits) == before + 2


def test_a_tensors_own_stream_is_no_other() -> None:
    """Recording the stream that it was made on changes nothing."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        torch.zeros(4, device="cuda").record_stream(torch.cuda.current_stream())
    assert not [a for a in sim.trace.assumptions if "record_stream" in a.what]
