"""Gradients of lookups, and sorts."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked, asked_in  # noqa: E402

import memlens  # noqa: E402
from memlens.simulation.rules import cub  # noqa: E402
from memlens.simulation.rules.sorting import sort_scratch  # noqa: E402

pytestmark = pytest.mark.torch
VECTOR = 2048 * 8


def test_the_gradient_of_a_lookup_sorts_2048_indices() -> None:
    """Five vectors of 16 KiB beside the gradient itself, as a recorded step shows; one block sorts."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        table = torch.empty(10_000, 1024, device="cuda", requires_grad=True)
        ids = torch.zeros(4, 512, dtype=torch.int64, device="cuda")
        out = table[ids]
        found = asked_in(sim, lambda: out.backward(torch.empty_like(out)))
    assert found.count(VECTOR) == 5
    assert found.count(10_000 * 1024 * 4) == 1  # the zeros that are added to, in place


def test_a_plain_write_through_indices_takes_nothing() -> None:
    """Without accumulate there is no sort."""
    ids = [0, 1, 2]

    def write(x):
        x[torch.tensor(ids, device="cuda")] = 1.0

    assert max(asked(write, (100, 8))) == 24


def gradient_of_embedding(number: int, width: int = 64, rows: int = 1000) -> list[int]:
    with memlens.simulate(gpu="A100 40GB") as sim:
        table = torch.empty(rows, width, device="cuda", requires_grad=True)
        ids = torch.zeros(number, dtype=torch.int64, device="cuda")
        out = torch.nn.functional.embedding(ids, table)
        grad = torch.empty_like(out)
        return asked_in(sim, lambda: out.backward(grad))


def test_few_embeddings_need_no_sort() -> None:
    """Up to 3,072 indices one kernel does it: only the gradient."""
    assert gradient_of_embedding(3072) == [1000 * 64 * 4]


def test_many_embeddings_are_summed_in_segments() -> None:
    """3,073 indices of 1,000 rows: 307 + 1,000 partial rows of 64 floats."""
    assert gradient_of_embedding(3073).count(1307 * 64 * 4) == 1


def test_one_block_sorts_2304_pairs_of_8_bytes() -> None:
    """256 threads of 9 pairs; one more and cub keeps a second copy of keys and values."""
    assert cub.radix_sort(2304, 8, 8) == 1
    assert cub.radix_sort(2305, 8, 8) > 2305 * 16


def test_rows_up_to_4096_are_sorted_in_place() -> None:
    """Values and indices, nothing else."""
    assert asked(lambda x: x.sort(-1), (32, 4096)) == [32 * 4096 * 4, 32 * 4096 * 8]


def test_a_long_row_takes_an_index_and_a_second_copy() -> None:
    """One row of 2**20 floats: 8 MiB of indices, and cub's copies of 4 + 8 bytes an element and words."""
    indices, storage = sort_scratch(1, 1 << 20, 4)
    assert indices == 8 << 20
    assert 12 << 20 < storage < 13 << 20


def test_a_random_permutation_sorts_random_keys() -> None:
    """10,000 numbers: 32-bit keys twice and a range of int64."""
    found = asked(lambda: torch.randperm(10_000, device="cuda"))
    assert found[:4] == [80_000, 40_000, 40_000, 80_000]


def test_a_scan_of_many_rows_takes_nothing() -> None:
    """cumsum along rows is one kernel; of one long row it is cub's, with a few words a tile."""
    assert asked(lambda x: x.cumsum(-1), (64, 1000)) == [256_000]
    assert asked(lambda x: x.cumsum(-1), (1 << 20,))[1] < 16_384
