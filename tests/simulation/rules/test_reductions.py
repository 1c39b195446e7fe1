"""Reductions: when they split over blocks, and what that takes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked  # noqa: E402

from memlens.simulation.rules.reductions.launch_config import Chip, Reduction  # noqa: E402

pytestmark = pytest.mark.torch
A100 = Chip(108)
FLOAT = Reduction(4, 4)


def test_a_gain_s_gradient_over_2048_rows_takes_16_mib() -> None:
    """(4, 512, 1024) to (1024) in float32: 32 blocks per output, 4 KiB * 32 * 128; found in a recording."""
    assert FLOAT.scratch((4, 512, 1024), (524288, 1024, 1), (0, 1), A100) == (16_777_216, 32)


def test_a_gain_s_gradient_over_512_rows_takes_nothing() -> None:
    """(4, 128, 1024): each thread sums 128 values, less than the 256 that call for more blocks."""
    assert FLOAT.scratch((4, 128, 1024), (131072, 1024, 1), (0, 1), A100) == (0, 0)


def test_a_sum_of_everything_meets_in_one_value_per_block() -> None:
    """2**24 floats on 108 multiprocessors of four blocks with 512 threads: 432 partial sums."""
    assert FLOAT.scratch((1 << 24,), (1,), (0,), A100) == (4 * 432, 4)


def test_rows_that_fill_the_card_are_not_split() -> None:
    """A sum along contiguous rows, one block or less per row."""
    assert FLOAT.scratch((8192, 4096), (4096, 1), (1,), A100) == (0, 0)


def test_dimensions_merge_whatever_their_number() -> None:
    """(4, 512, 1024) over (0, 1) is (2048, 1024) over 0."""
    assert FLOAT.scratch((2048, 1024), (1024, 1), (0,), A100) == (16_777_216, 32)


def test_what_does_not_fit_32_bits_runs_in_halves() -> None:
    """4 GiB summed: the largest half decides, as 2**29 floats do."""
    assert FLOAT.scratch((1 << 30,), (1,), (0,), A100) == FLOAT.scratch((1 << 29,), (1,), (0,), A100)


def test_a_small_card_splits_less() -> None:
    """A T4 (40 multiprocessors of 1,024 threads) has 80 blocks; 2**26 floats at 256 a thread ask for 512."""
    staging, _ = FLOAT.scratch((1 << 26,), (1,), (0,), Chip(40, 1024))
    assert staging == 4 * 512


def test_a_sum_allocates_output_staging_semaphores() -> None:
    """What the simulation asks its allocator for."""
    assert asked(lambda x: x.sum((0, 1)), (4, 512, 1024)) == [4096, 16_777_216, 32]


def test_a_variance_accumulates_16_bytes() -> None:
    """Welford's four numbers: four times the staging of a sum of the same launch."""
    plain = Reduction(4, 4, vector=2).scratch((1 << 20,), (1,), (0,), A100)
    assert asked(torch.var, (1 << 20,)) == [4, 4 * plain[0], 4]


def test_a_mask_is_counted_in_a_copy_of_int64() -> None:
    """`mask.sum()` copies a bool tensor to eight times its size."""
    found = asked(lambda x: x.sum(-1), (64, 1024), dtype=torch.bool)
    assert found == [64 * 8, 64 * 1024 * 8]


def test_bfloat16_to_float32_needs_no_copy() -> None:
    """The kernel reads 16-bit types itself."""
    found = asked(lambda x: x.sum(-1, dtype=torch.float32), (64, 1024), dtype=torch.bfloat16)
    assert found == [64 * 4]


def test_maxima_with_indices_stage_16_bytes() -> None:
    """argmax of 2**20 floats: as many partial results as a sum has, four times as wide."""
    staging, _ = FLOAT.scratch((1 << 20,), (1,), (0,), A100)
    assert asked(torch.argmax, (1 << 20,)) == [8, 4 * staging, 4]


def test_logsumexp_holds_a_second_input() -> None:
    """exp(x - max) is as large as x."""
    assert asked(lambda x: x.logsumexp(-1), (32, 1024)) == [128, 128, 128, 131_072]
