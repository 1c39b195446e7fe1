"""What sizes that nobody knows do to the peaks."""

from __future__ import annotations

from memlens.allocator import AllocatorConfig, Late, Spread, Uncertain, parse_config, spread
from memlens.model import Alloc, Event, Free, SegmentAlloc, SegmentFree
from memlens.units import MIB


def workspace_then_tensors(workspace_bytes: int) -> list[Event]:
    """A workspace comes and goes; tensors of 30 and 20 MiB come after it."""
    return [Alloc(1, workspace_bytes), Free(1), Alloc(2, 30 * MIB), Alloc(3, 20 * MIB)]


def reserved(expected_mib: int, low_mib: int, high_mib: int) -> tuple[int, int]:
    """By how many MiB the reserved peak moves."""
    sizes = [Uncertain(0, 1, low_mib * MIB, high_mib * MIB)]
    moves = spread(workspace_then_tensors(expected_mib * MIB), AllocatorConfig(), sizes)
    low, high = moves.reserved_bytes
    return low // MIB, high // MIB


def test_a_workspace_that_is_cut_moves_reserved_but_not_allocated() -> None:
    """40 MiB are cut into 30 and 10, which 20 do not fit: 60 reserved; without the workspace 50 would do."""
    moves = spread(workspace_then_tensors(40 * MIB), AllocatorConfig(), [Uncertain(0, 1, 0, 40 * MIB)])
    assert moves == Spread(allocated_bytes=(0, 0), reserved_bytes=(-10 * MIB, 0))


def test_a_larger_workspace_may_need_less_and_a_smaller_one_more() -> None:
    """Expected 40 MiB: both 30 and 50 fit what follows better. Expected 50: both 40 and 60 fit it worse."""
    assert reserved(40, 30, 50) == (-10, 0)
    assert reserved(50, 40, 60) == (0, 10)


def test_one_kind_alone_may_need_the_most() -> None:
    """Two workspaces of 60 MiB share a segment, and so do two of 70: but 70 after 60 needs one of its own."""
    sizes = [Uncertain(0, 1, 60 * MIB, 70 * MIB, "a"), Uncertain(2, 2, 60 * MIB, 70 * MIB, "b")]
    events: list[Event] = [Alloc(1, 60 * MIB), Free(1), Alloc(2, 60 * MIB), Free(2)]
    assert spread(events, AllocatorConfig(), sizes).reserved_bytes == (0, 70 * MIB)
    alike = [size._replace(kind="") for size in sizes]
    assert spread(events, AllocatorConfig(), alike).reserved_bytes == (0, 10 * MIB)


def test_a_workspace_that_nobody_expected_is_tried_at_its_place() -> None:
    """10 MiB are in use when 90 more may be taken for a moment: before event 1, not at the end."""
    events = [Alloc(1, 10 * MIB), Free(1), Alloc(2, 50 * MIB)]
    moves = spread(events, AllocatorConfig(), [Uncertain(1, 0, 0, 90 * MIB)])
    assert moves == Spread((0, 50 * MIB), (0, 40 * MIB))
    later = spread(events, AllocatorConfig(), [Uncertain(3, 0, 0, 90 * MIB)])
    assert later == Spread((0, 90 * MIB), (0, 90 * MIB))


def test_what_nobody_expected_may_stay_for_a_while() -> None:
    """30 MiB that stay until event 2 are beside the tensor of 50; those given back at once are before it."""
    events: list[Event] = [Alloc(1, 10 * MIB), Alloc(2, 50 * MIB), Free(2)]
    stays = Uncertain(1, 0, 0, 30 * MIB, until=2)
    assert spread(events, AllocatorConfig(), [stays]) == Spread((0, 30 * MIB), (0, 30 * MIB))
    assert spread(events, AllocatorConfig(), [stays._replace(until=0)]) == Spread((0, 0), (0, 30 * MIB))


def test_a_block_that_waits_for_another_stream_is_not_used_again() -> None:
    """40 MiB are freed and asked for once more: reserved twice, unless the host waited in between."""
    events: list[Event] = [Alloc(1, 40 * MIB), Free(1), Alloc(2, 40 * MIB)]
    late = Late(frozenset({1}))
    assert spread(events, AllocatorConfig(), late=late) == Spread((0, 0), (0, 40 * MIB))
    assert spread(events, AllocatorConfig(), late=late._replace(waits=[2])) == Spread()


def test_sizes_that_are_certain_move_nothing() -> None:
    """As much at least as at most: no replay is needed."""
    assert spread([Alloc(1, MIB)], AllocatorConfig(), [Uncertain(0, 1, MIB, MIB)]) == Spread()
    assert spread([Alloc(1, MIB)], AllocatorConfig(), []) == Spread()


def test_a_fraction_of_the_card_does_not_end_a_replay() -> None:
    """The range says how much would be needed, also where the setting allows less."""
    config = parse_config("per_process_memory_fraction:0.1")
    moves = spread([Alloc(1, 40 * MIB), Free(1)], config, [Uncertain(0, 1, 0, 1 << 40)])
    assert moves.reserved_bytes[1] == (1 << 40) - 40 * MIB


def test_a_cache_that_was_emptied_is_emptied_in_a_replay() -> None:
    """The workspace's segment went back before the tensor came, so it never adds to it."""
    events = [
        SegmentAlloc(0, 40 * MIB), Alloc(1, 40 * MIB), Free(1), SegmentFree(0, 40 * MIB), Alloc(2, 30 * MIB),
    ]  # fmt: skip
    moves = spread(events, AllocatorConfig(), [Uncertain(1, 1, 0, 60 * MIB)])
    assert moves.reserved_bytes == (-10 * MIB, 20 * MIB)


def test_replays_go_by_the_settings() -> None:
    """A segment that grows is never cut into a useless rest: the same 50 MiB with and without."""
    config = parse_config("expandable_segments:True")
    moves = spread(workspace_then_tensors(40 * MIB), config, [Uncertain(0, 1, 0, 40 * MIB)])
    assert moves == Spread()
