"""Streams: blocks belong to the stream that was current, in backward to that of the forward."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.model import Alloc  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def streams_of(events: list, nbytes: int) -> list[int]:
    return [event.stream for event in events if isinstance(event, Alloc) and event.bytes == nbytes]


def test_backward_runs_on_the_stream_of_its_forward() -> None:
    """Forward under a stream, backward outside of it: gradients of 4 MiB on that stream all the same."""
    with memlens.simulate("T4") as sim:
        stream = torch.cuda.Stream()
        batch = torch.ones(1024, 1024, device="cuda", requires_grad=True)
        with torch.cuda.stream(stream):
            loss = batch.sin().exp().sum()
        before = len(sim.trace.events)
        loss.backward()
        assert set(streams_of(sim.trace.events[before:], 4 * MIB)) == {stream.stream_id}


def test_each_part_goes_back_on_its_own_stream() -> None:
    """Half of the forward on the default stream, half on another; backward is called under a third."""
    with memlens.simulate("T4") as sim:
        side, third = torch.cuda.Stream(), torch.cuda.Stream()
        batch = torch.ones(1024, 1024, device="cuda", requires_grad=True)
        middle = batch.sin()
        with torch.cuda.stream(side):
            loss = middle[:512].exp().sum()
        before = len(sim.trace.events)
        with torch.cuda.stream(third):
            loss.backward()
        events = sim.trace.events[before:]
        assert set(streams_of(events, 2 * MIB)) == {side.stream_id}  # of exp
        assert set(streams_of(events, 4 * MIB)) == {side.stream_id, 0}  # of the slice, and of sin


def test_code_inside_backward_chooses_its_stream() -> None:
    """A hook that enters a stream allocates there, and the next node is on its own again."""
    with memlens.simulate("T4") as sim:
        side = torch.cuda.Stream()
        batch = torch.ones(1024, 1024, device="cuda", requires_grad=True)
        middle = batch.sin()

        def hook(gradient: torch.Tensor) -> None:
            with torch.cuda.stream(side):
                torch.ones(768, 1024, device="cuda")

        middle.register_hook(hook)
        loss = middle.exp().sum()
        before = len(sim.trace.events)
        loss.backward()
        events = sim.trace.events[before:]
        assert streams_of(events, 3 * MIB) == [side.stream_id]
        assert set(streams_of(events, 4 * MIB)) == {0}
