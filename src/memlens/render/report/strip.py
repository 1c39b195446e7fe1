"""All reserved memory by address, as rows of equal bytes: which pieces are used, and for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memlens.explanation.address_map import SegmentView, layout
from memlens.model import Category, Trace
from memlens.render.report.blocks import Strip
from memlens.units import format_bytes, format_count

ROWS = 16
FINEST = 1 / 400  # of a row: what is thinner is drawn together with its neighbours
FREE = "free"
Piece = tuple[int, int, str]  # start, bytes, colour


def strip(trace: Trace, index: int) -> tuple[Strip | None, list[SegmentView]]:
    """The map after event number `index`, and the segments it was made from; no map without addresses."""
    segments = sorted(layout(trace, index), key=lambda view: (view.small, view.stream, -view.bytes))
    whole = sum(view.bytes for view in segments)
    if not whole or not any(block.state == "used" for view in segments for block in view.blocks):
        return None, segments
    kinds: dict[int, str] = {
        alloc.address: alloc.category.value
        for alloc in trace.breakdown(index).live
        if alloc.address is not None
    }
    row_bytes = -(-whole // ROWS)
    pieces = list(_pieces(segments, kinds))
    rows = [_row(part, row_bytes) for part in _rows(pieces, row_bytes)]
    seen = {colour for _, _, colour in pieces}
    legend = [(category.value, category.label) for category in Category if category.value in seen]
    note = (
        f"{format_count(len(segments))} segments, {format_bytes(whole)}, each row {format_bytes(row_bytes)}: "
        "the large pool's first, the largest first, then the small pool's. Pieces thinner than the drawing "
        "are drawn with the colour of the largest next to them."
    )
    return Strip("What is where", rows, [*legend, (FREE, "reserved, unused")], note), segments


def _pieces(segments: Iterable[SegmentView], kinds: dict[int, str]) -> Iterator[Piece]:
    start = 0
    for view in segments:
        for block in view.blocks:
            colour = kinds.get(block.address, "unknown") if block.state == "used" else FREE
            yield start, block.bytes, colour
            start += block.bytes


def _rows(pieces: Iterable[Piece], row_bytes: int) -> Iterator[list[Piece]]:
    """The pieces of each row, cut at its ends; starts count from the row's own."""
    row: list[Piece] = []
    number = 0
    for start, size, colour in pieces:
        while size:
            room = (number + 1) * row_bytes - start
            taken = min(size, room)
            row.append((start - number * row_bytes, taken, colour))
            start, size = start + taken, size - taken
            if taken == room:
                yield row
                row, number = [], number + 1
    if row:
        yield row


def _row(pieces: list[Piece], row_bytes: int) -> list[tuple[float, float, str]]:
    """Percent of the row; thin pieces are gathered until they can be seen, under the colour of most."""
    drawn: list[tuple[float, float, str]] = []
    sums: dict[str, int] = {}
    begun = 0
    for number, (start, size, colour) in enumerate(pieces):
        sums[colour] = sums.get(colour, 0) + size
        end = start + size
        alone = number + 1 == len(pieces) or pieces[number + 1][1] >= row_bytes * FINEST
        if end - begun >= row_bytes * FINEST and (alone or size >= row_bytes * FINEST):
            most = max(sums, key=sums.__getitem__)
            _draw(drawn, 100 * begun / row_bytes, 100 * (end - begun) / row_bytes, most)
            sums, begun = {}, end
    if sums:
        most = max(sums, key=sums.__getitem__)
        _draw(drawn, 100 * begun / row_bytes, 100 * sum(sums.values()) / row_bytes, most)
    return drawn


def _draw(drawn: list[tuple[float, float, str]], start: float, width: float, colour: str) -> None:
    if drawn and drawn[-1][2] == colour:
        start, width = drawn[-1][0], drawn[-1][1] + width
        drawn.pop()
    drawn.append((round(start, 3), round(width, 3), colour))
