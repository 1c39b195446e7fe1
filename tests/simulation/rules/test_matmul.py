"""Which operands of a matrix product are copied."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out cuBLAS' own workspace, which the first product of each simulation takes."""
    monkeypatch.setattr(
        "memlens.simulation.core.session.Simulation.blas_workspace", lambda self, operator: None
    )


def test_rows_columns_and_slices_are_read_in_place() -> None:
    """A transposed matrix, and columns cut from a wider one."""
    assert asked(lambda a, b: a @ b.t(), (32, 64), (16, 64)) == [32 * 16 * 4]
    assert asked(lambda a, b: a[:, :64] @ b, (32, 128), (64, 16)) == [32 * 16 * 4]


def test_every_second_column_is_copied() -> None:
    """Neither rows nor columns are dense: 32 x 64 floats are copied."""
    assert asked(lambda a, b: a[:, ::2] @ b, (32, 128), (64, 16)) == [32 * 16 * 4, 32 * 64 * 4]


def test_an_expanded_matrix_of_a_batch_is_read_in_place() -> None:
    """The stride between matrices may be 0."""
    found = asked(lambda a, b: torch.bmm(a.expand(8, 32, 64), b), (1, 32, 64), (8, 64, 16))
    assert found == [8 * 32 * 16 * 4]


def test_an_expanded_row_of_a_batch_is_copied() -> None:
    """One row for every row: cuBLAS would need a leading dimension of 0."""
    found = asked(lambda a, b: torch.bmm(a.expand(8, 32, 64), b), (8, 1, 64), (8, 64, 16))
    assert found == [8 * 32 * 16 * 4, 8 * 32 * 64 * 4]


def test_the_bias_of_a_linear_layer_is_not_copied() -> None:
    """addmm of a vector: only the result."""
    assert asked(torch.nn.functional.linear, (32, 64), (16, 64), (16,)) == [32 * 16 * 4]
