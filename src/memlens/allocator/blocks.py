"""Blocks, the segments they tile, and the pools of free ones."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from memlens.allocator.statistics import PoolStatistics

KEY_SHIFT: Final = 64  # a free block's key is size << 64 | address: the order (size, address) in one int


class State(IntEnum):
    """FREE may be handed out; PENDING waits for other streams; UNMAPPED has no physical memory yet."""

    USED = 0
    FREE = 1
    PENDING = 2
    UNMAPPED = 3


USED: Final = State.USED
FREE: Final = State.FREE
PENDING: Final = State.PENDING
UNMAPPED: Final = State.UNMAPPED


class Segment:
    """Memory that came from the driver in one piece, or the address range of an expandable segment."""

    __slots__ = ("address", "expandable", "head", "pool", "size")

    head: Block

    def __init__(self, address: int, size: int, pool: Pool, expandable: bool = False) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.expandable = expandable


class Block:
    """A stretch of a segment. `size` is what PyTorch counts as allocated, `requested` what was asked for."""

    __slots__ = (
        "address",
        "freed_at_search",
        "next",
        "pool",
        "prev",
        "requested",
        "segment",
        "size",
        "state",
        "streams",
    )

    def __init__(self, address: int, size: int, segment: Segment, pool: Pool, state: State) -> None:
        self.address = address
        self.size = size
        self.requested = 0
        self.segment = segment
        self.pool = pool
        self.state = state
        self.prev: Block | None = None
        self.next: Block | None = None
        self.streams: set[int] | None = None  # other streams that use it (record_stream)
        self.freed_at_search = 0  # its age in searches, for the garbage collector

    def __repr__(self) -> str:
        return f"Block(address={self.address:#x}, size={self.size}, state={self.state.name})"

    @property
    def is_split(self) -> bool:
        return self.prev is not None or self.next is not None

    def split_off(self, size: int, state: State) -> Block:
        """Keep the first `size` bytes; what remains becomes a new block of `state` after this one."""
        rest = Block(self.address + size, self.size - size, self.segment, self.pool, state)
        rest.prev, rest.next = self, self.next
        if self.next is not None:
            self.next.prev = rest
        self.next = rest
        self.size = size
        return rest

    def absorb_next(self) -> None:
        """Take over the block behind this one."""
        taken = self.next
        assert taken is not None
        self.size += taken.size
        self.next = taken.next
        if taken.next is not None:
            taken.next.prev = self


class Pool:
    """The free blocks of one stream and size class, in the order of (size, address)."""

    __slots__ = ("by_key", "keys", "small", "statistics", "stream", "unmapped")

    def __init__(self, stream: int, small: bool, statistics: PoolStatistics) -> None:
        self.stream = stream
        self.small = small
        self.statistics = statistics
        self.keys: list[int] = []
        self.by_key: dict[int, Block] = {}
        self.unmapped: list[Block] = []  # parts of expandable segments, by address

    def add(self, block: Block) -> None:
        key = block.size << KEY_SHIFT | block.address
        insort(self.keys, key)
        self.by_key[key] = block

    def remove(self, block: Block) -> None:
        key = block.size << KEY_SHIFT | block.address
        del self.keys[bisect_left(self.keys, key)]
        del self.by_key[key]

    def take(self, index: int) -> Block:
        return self.by_key.pop(self.keys.pop(index))

    def free_blocks(self) -> list[Block]:
        return [self.by_key[key] for key in self.keys]

    def add_unmapped(self, block: Block) -> None:
        insort(self.unmapped, block, key=lambda other: other.address)

    def merge(self, block: Block) -> Block:
        """Join `block` with the neighbours in its own state, which leave the lists; the joined block.

        The block at the lower address survives, so a segment's head stays its head.
        """
        after, before = block.next, block.prev
        if after is not None and after.state == block.state:
            self._forget(after)
            block.absorb_next()
        if before is not None and before.state == block.state:
            self._forget(before)
            before.absorb_next()
            return before
        return block

    def _forget(self, block: Block) -> None:
        if block.state == UNMAPPED:
            self.unmapped.remove(block)
        else:
            self.remove(block)


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a `SegmentView`; `state` is used, free, pending or unmapped."""

    address: int
    bytes: int
    requested_bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment with the blocks that tile it, for views of fragmentation."""

    address: int
    bytes: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[BlockView, ...]

    @property
    def free_bytes(self) -> int:
        return sum(block.bytes for block in self.blocks if block.state == "free")


def view(segment: Segment) -> SegmentView:
    """`segment` as plain data. Blocks without physical memory are left out, and not counted in `bytes`."""
    blocks = []
    block: Block | None = segment.head
    while block is not None:
        if block.state != UNMAPPED:
            blocks.append(BlockView(block.address, block.size, block.requested, block.state.name.lower()))
        block = block.next
    size = sum(block.bytes for block in blocks)
    pool = segment.pool
    return SegmentView(segment.address, size, pool.stream, pool.small, segment.expandable, tuple(blocks))
