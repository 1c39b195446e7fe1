"""`F.unfold`: its columns and the storage that its gradient keeps."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402

pytestmark = pytest.mark.torch
MIB = 1 << 20


def test_the_gradient_of_unfold_keeps_a_storage_of_the_columns_size() -> None:
    """1 MiB of input has 9 MiB of columns; its gradient's storage begins as large as those."""
    with memlens.simulate("A100 80GB"):
        x = torch.zeros(1, 4, 256, 256, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        columns = torch.nn.functional.unfold(x, 3, padding=1)
        assert torch.cuda.memory_allocated() - before == 9 * MIB
        assert torch.cuda.max_memory_allocated() - before == 10 * MIB
        columns.sum().backward()
        del columns
        assert x.grad.shape == x.shape
        assert torch.cuda.memory_allocated() - before == 9 * MIB
