"""The searches by themselves: the largest batch, the cheapest set of blocks, how many parts."""

from __future__ import annotations

from itertools import combinations

import pytest

pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st

from memlens.advice.advise import read_margin_bytes
from memlens.advice.batch import search
from memlens.advice.checkpointing_plan import cheapest, spans
from memlens.advice.facts import Block
from memlens.errors import UsageError

pytestmark = pytest.mark.torch
SIZES = st.integers(0, 40)


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(0, 10**7))
def test_the_largest_batch_on_a_line(fixed: int, each: int, memory: int) -> None:
    """Memory of `fixed + each * batch`: the answer is that of a division, found in a few runs."""
    calls = []

    def fits_at(batch: int) -> tuple[bool, int]:
        calls.append(batch)
        return fixed + each * batch <= memory, fixed + each * batch

    expected = max((memory - fixed) // each, 0) if memory >= fixed else 0
    assert search(fits_at, memory, most=10**8) == (expected, False)
    assert len(calls) <= 40
    assert len(set(calls)) == len(calls)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(0, 30_000))
def test_one_more_never_fits(steps: list[int], memory: int) -> None:
    """On a curve with jumps the answer fits and one more does not, or is the end of the search."""
    curve = [sum(steps[:n]) for n in range(len(steps) + 1)]  # bytes of a batch of n
    batch, capped = search(lambda n: (curve[n] <= memory, curve[n]), memory, most=len(steps))
    assert batch == 0 or curve[batch] <= memory
    assert capped or curve[batch + 1] > memory


def test_a_search_that_cannot_see_memory_halves() -> None:
    """Where no figure is known, 20 answers of yes or no are enough for a million."""
    calls = []

    def fits_at(batch: int) -> tuple[bool, None]:
        calls.append(batch)
        return batch <= 123_456, None

    assert search(fits_at, 0, most=1 << 20) == (123_456, False)
    assert len(calls) < 40


@settings(deadline=None)
@given(st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=8), st.integers(0, 200))
def test_the_cheapest_set_of_blocks(sizes: list[tuple[int, int]], need: int) -> None:
    """As cheap as the cheapest of all subsets that keep enough; all blocks where none does."""
    blocks = [Block(f"b.{i}", kept, flops) for i, (kept, flops) in enumerate(sizes)]
    chosen = cheapest(blocks, need)
    enough = [
        subset
        for count in range(len(blocks) + 1)
        for subset in combinations(range(len(blocks)), count)
        if sum(blocks[i].kept_bytes for i in subset) >= need
    ]

    def work(subset: tuple[int, ...]) -> int:
        return sum(max(blocks[i].flops, 1) for i in subset)

    if enough:
        assert chosen in enough
        assert work(chosen) == min(map(work, enough))
    else:
        assert chosen == tuple(range(len(blocks)))


def test_of_equal_blocks_the_first_are_taken() -> None:
    """What the first blocks keep is there longest."""
    blocks = [Block(f"h.{i}", 100, 7) for i in range(12)]
    assert cheapest(blocks, 250) == (0, 1, 2)
    assert spans([blocks[i].path for i in (0, 1, 2, 5)]) == "h.0 to h.2, h.5"


@pytest.mark.parametrize(
    ("margin", "expected"), [("5%", 50), ("0%", 0), (0.25, 250), ("512", 512), (7, 7), ("0.1KiB", 102)]
)
def test_margins(margin: str | int | float, expected: int) -> None:
    """A share of the card, an amount, or bytes."""
    assert read_margin_bytes(margin, 1000) == expected


@pytest.mark.parametrize("margin", ["x%", "100%", "2KiB", "-5%", 1.5])
def test_margins_that_make_no_sense(margin: str | float) -> None:
    """One line for what cannot be read, and for what leaves nothing."""
    with pytest.raises(UsageError):
        read_margin_bytes(margin, 1000)
