"""A tiny language for allocator tests: `a+512 b+20M a- sync empty` allocates, frees and releases by name."""

from __future__ import annotations

import re

from memlens.allocator import AllocatorConfig, Block, CachingAllocator
from memlens.units import GIB, KIB, MIB

UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB}
WORD = re.compile(r"(\w+?)(?:\+(\d+)([KMG]?)(?:@(\d+))?|(-))\Z")


class Play:
    """An allocator, its named blocks, and the segments it took and gave back (`+20M -2M map20M`)."""

    def __init__(self, config: AllocatorConfig | None = None, capacity_bytes: int | None = None) -> None:
        self.blocks: dict[str, Block] = {}
        self.segments: list[str] = []
        self.allocator = CachingAllocator(config, capacity_bytes, on_segment=self.record)

    def record(self, kind: str, address: int, size: int, stream: int, small: bool) -> None:
        sign = {"alloc": "+", "free": "-"}.get(kind, kind)
        self.segments.append(f"{sign}{size // MIB}M")

    def __call__(self, program: str) -> Play:
        """Run `program`: NAME+SIZE[K|M|G][@STREAM] allocates, NAME- frees, `sync` and `empty` are calls."""
        for word in program.split():
            if word in ("sync", "empty"):
                {"sync": self.allocator.synchronize, "empty": self.allocator.empty_cache}[word]()
                continue
            match = WORD.match(word)
            assert match is not None, word
            name, number, unit, stream, free = match.groups()
            if free:
                self.allocator.free(self.blocks.pop(name))
            else:
                self.blocks[name] = self.allocator.malloc(int(number) * UNITS[unit], int(stream or 0))
        return self

    def offset(self, name: str) -> int:
        """How far into its segment the block lies."""
        return self.blocks[name].address - self.blocks[name].segment.address


def play(program: str, config: AllocatorConfig | None = None, capacity_bytes: int | None = None) -> Play:
    return Play(config, capacity_bytes)(program)
