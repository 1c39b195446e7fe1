"""Losses that take more than their result, and gradients that torch has no meta kernel for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402

pytestmark = pytest.mark.torch
F = torch.nn.functional
MIB = 1 << 20
N = 1 << 18  # elements of float32 in one MiB


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.binary_cross_entropy])
def test_the_loss_keeps_a_storage_of_its_inputs_size(loss: object) -> None:
    """A number whose storage is as large as the input lives as long as the loss does."""
    with memlens.simulate("A100 80GB"):
        x, y = (torch.empty(N, device="cuda") for _ in range(2))
        before = torch.cuda.memory_allocated()
        result = loss(x, y)  # type: ignore[operator]
        assert result.shape == ()
        assert torch.cuda.memory_allocated() - before == MIB


@pytest.mark.parametrize(("loss", "mib"), [(F.mse_loss, 2), (F.smooth_l1_loss, 2), (F.huber_loss, 1)])
def test_the_elements_are_a_tensor_before_they_are_reduced(loss: object, mib: int) -> None:
    """Structured losses have two tensors of the input's size at one time, huber_loss one."""
    with memlens.simulate("A100 80GB"):
        x, y = (torch.empty(N, device="cuda") for _ in range(2))
        before = torch.cuda.memory_allocated()
        loss(x, y)  # type: ignore[operator]
        assert (torch.cuda.max_memory_allocated() - before) / MIB == pytest.approx(mib, abs=0.05)


def test_without_reduction_there_is_only_the_result() -> None:
    """`reduction="none"`: one tensor of the input's size."""
    with memlens.simulate("A100 80GB"):
        x, y = (torch.empty(N, device="cuda") for _ in range(2))
        before = torch.cuda.memory_allocated()
        assert F.mse_loss(x, y, reduction="none").shape == (N,)
        assert torch.cuda.max_memory_allocated() - before == MIB


def test_margin_losses_have_gradients() -> None:
    """Both of them, laid out as their input."""
    with memlens.simulate("A100 80GB"):
        for loss in (F.multi_margin_loss, F.multilabel_margin_loss):
            x = torch.randn(4, 5, device="cuda", requires_grad=True)
            target = torch.zeros(
                (4,) if loss is F.multi_margin_loss else (4, 5), dtype=torch.long, device="cuda"
            )
            loss(x, target).backward()
            assert x.grad.shape == (4, 5)


def test_rms_norm_has_a_second_gradient() -> None:
    """A gradient penalty through RMSNorm runs, with the gradients of input and gain."""
    with memlens.simulate("A100 80GB"):
        norm = torch.nn.RMSNorm(8, device="cuda")
        x = torch.randn(2, 8, device="cuda", requires_grad=True)
        (grad,) = torch.autograd.grad(norm(x).sum(), x, create_graph=True)
        grad.sum().backward()
        assert (x.grad.shape, norm.weight.grad.shape) == ((2, 8), (8,))


def test_tensors_that_torch_makes_in_python_are_counted() -> None:
    """`unravel_index` makes two tensors of its own from Python numbers."""
    with memlens.simulate("A100 80GB"):
        rows, columns = torch.unravel_index(torch.arange(4, device="cuda"), (2, 3))
        assert rows.shape == columns.shape == (4,)


def test_masked_scatter_takes_eight_bytes_per_element() -> None:
    """An int64 prefix sum of the mask, beside the copy that is written to."""
    with memlens.simulate("A100 80GB"):
        x, source = (torch.empty(N, device="cuda") for _ in range(2))
        mask = torch.empty(N, dtype=torch.bool, device="cuda")
        before = torch.cuda.memory_allocated()
        x.masked_scatter(mask, source)
        assert (torch.cuda.max_memory_allocated() - before) / MIB == pytest.approx(3, abs=0.01)


def test_indices_of_nonzero_elements_are_laid_out_by_dimension() -> None:
    """Each column is contiguous, as cuda/Nonzero.cu makes them."""
    with memlens.simulate("A100 80GB"):
        mask = torch.tensor([[1, 0], [1, 1]], device="cuda")
        assert mask.nonzero().stride() == (1, 3)


def test_a_list_as_index_is_counted() -> None:
    """`x[[0, 2]]`: the index that C++ makes of the list is on the card while it is used."""
    with memlens.simulate("A100 80GB"):
        x = torch.empty(5, 4, device="cuda")
        assert x[[0, 2]].shape == (2, 4)
        assert x[:, [True, False, True, False]].shape[0] == 5
        x[[0, 1]] = 0.0
        assert torch.cuda.memory_allocated() == 512
