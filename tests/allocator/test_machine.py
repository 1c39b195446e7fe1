"""The allocator under random programs: what must hold after every step, whatever the settings."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memlens.allocator import Block, CachingAllocator, DeviceFull, parse_config
from memlens.allocator.rules import SMALL_BYTES, page_bytes, round_request, segment_bytes
from memlens.units import KIB, MIB

SETTINGS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "large_segment_size_mb:32",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
    "expandable_segments:True,max_split_size_mb:24",
]
SIZES = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 2 * MIB),
    st.integers(MIB, 40 * MIB),
    st.sampled_from([MIB, 10 * MIB]),
)


class AllocatorMachine(RuleBasedStateMachine):
    """Allocates and frees on two streams of a device of 200 MiB."""

    capacity = 200 * MIB

    @initialize(text=st.sampled_from(SETTINGS))
    def start(self, text: str) -> None:
        self.config = parse_config(text)
        self.from_driver = 0
        self.allocator = CachingAllocator(self.config, self.capacity, on_segment=self.record)
        self.live: list[Block] = []
        self.waiting: list[Block] = []

    def record(self, kind: str, address: int, size: int, stream: int, small: bool) -> None:
        self.from_driver += size if kind in ("alloc", "map") else -size

    @rule(size=SIZES, stream=st.sampled_from([0, 7]))
    def malloc(self, size: int, stream: int) -> None:
        try:
            block = self.allocator.malloc(size, stream)
        except DeviceFull as full:
            self.cannot_fit(size, stream, full)
            return
        assert block.requested == size
        assert block.size >= round_request(size, self.config)
        assert block.pool.stream == stream
        assert block.pool.small is (round_request(size, self.config) <= SMALL_BYTES)
        self.live.append(block)

    def cannot_fit(self, size: int, stream: int, full: DeviceFull) -> None:
        """No free block that may be used holds it, nothing whole is left to release, no segment fits."""
        rounded = round_request(size, self.config)
        small = rounded <= SMALL_BYTES
        limit = self.config.max_split_bytes
        room = full.free_bytes
        if full.allowed_bytes is not None:
            room = min(room, full.allowed_bytes - full.reserved_bytes)
        wanted = segment_bytes(rounded, self.config)
        if self.config.expandable_segments:  # physical memory comes in whole pages
            page = page_bytes(small, self.config)
            wanted = max(wanted, -(-rounded // page) * page)
        assert room < wanted
        for segment in self.allocator.snapshot_segments():
            if segment.expandable:
                page = page_bytes(segment.small, self.config)
                pages = [b for b in segment.blocks if b.state == "free" and b.bytes >= 2 * page]
                assert not pages or full.allowed_bytes is not None
                continue
            assert segment.free_bytes < segment.bytes
            for block in segment.blocks:
                usable = (segment.small, segment.stream, block.state) == (small, stream, "free")
                if usable and limit is None:
                    assert block.bytes < rounded

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        if block.streams:
            self.waiting.append(block)
        self.allocator.free(block)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), stream=st.sampled_from([0, 7]))
    def record_stream(self, data: st.DataObject, stream: int) -> None:
        self.allocator.record_stream(data.draw(st.sampled_from(self.live)), stream)

    @rule()
    def synchronize(self) -> None:
        self.allocator.synchronize()
        assert not self.allocator.pending

    @rule()
    def empty_cache(self) -> None:
        self.allocator.empty_cache()
        for segment in self.allocator.snapshot_segments():
            page = page_bytes(segment.small, self.config) if segment.expandable else segment.bytes
            assert all(block.bytes < 2 * page for block in segment.blocks if block.state == "free")
            assert any(block.state != "free" for block in segment.blocks) or segment.expandable

    @invariant()
    def blocks_tile_their_segments(self) -> None:
        if not hasattr(self, "allocator"):
            return
        seen: list[tuple[int, int]] = []
        for segment in self.allocator.snapshot_segments():
            place = segment.blocks[0].address
            states = [block.state for block in segment.blocks]
            for block in segment.blocks:
                assert block.address == place or segment.expandable  # unmapped pages lie between
                assert block.address >= place
                place = block.address + block.bytes
                seen.append((block.address, place))
            if not segment.expandable:
                assert place == segment.address + segment.bytes
                pairs = set(pairwise(states))
                assert ("free", "free") not in pairs, "free neighbours are merged"
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(seen)))

    @invariant()
    def sums_close(self) -> None:
        if not hasattr(self, "allocator"):
            return
        allocator = self.allocator
        segments = allocator.snapshot_segments()
        blocks = [block for segment in segments for block in segment.blocks]
        used = sum(block.bytes for block in blocks if block.state == "used")
        assert allocator.allocated_bytes == used == sum(block.size for block in self.live)
        assert allocator.reserved_bytes == sum(segment.bytes for segment in segments) == self.from_driver
        assert used <= allocator.reserved_bytes <= allocator.max_reserved_bytes <= self.capacity
        stats = allocator.stats()
        for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "segment"):
            pools = stats[f"{name}.small_pool.current"] + stats[f"{name}.large_pool.current"]
            assert stats[f"{name}.all.current"] == pools
        split = sum(
            block.bytes
            for segment in segments
            for block in segment.blocks
            if block.state == "free" and len(segment.blocks) > 1 and not segment.expandable
        )
        assert stats["inactive_split_bytes.all.current"] == split
        pending = sum(block.size for block in allocator.pending)
        assert stats["active_bytes.all.current"] == used + pending


AllocatorMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAllocatorMachine = AllocatorMachine.TestCase
