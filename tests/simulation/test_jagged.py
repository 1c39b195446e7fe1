"""Jagged tensors: what they do, they do with the tensor inside, whose bytes count."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import memlens  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]


def jagged(*lengths: int, width: int = 32) -> torch.Tensor:
    """Rows of different numbers on the card."""
    rows = [torch.randn(length, width) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, device="cuda")


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        (lambda x: F.linear(x, torch.ones(7, 32, device="cuda")), (2, 7)),
        (lambda x: x @ torch.ones(32, 4, device="cuda"), (2, 4)),
        (lambda x: x.unflatten(-1, [2, 16]), (2, 2, 16)),
        (lambda x: x.reshape(2, -1, 4, 8), (2, 4, 8)),
        (lambda x: F.layer_norm(x, (32,)), (2, 32)),
        (lambda x: F.gelu(x), (2, 32)),
    ],
    ids=["linear", "matmul", "unflatten", "reshape", "layer_norm", "gelu"],
)
def test_operators_of_jagged_tensors(operation, shape: tuple[int, ...]) -> None:
    """Composite ones and kernels: the result is jagged, and on the card."""
    with memlens.simulate("A100 40GB"):
        out = operation(jagged(3, 5))
        assert out.is_nested
        assert out.is_cuda
        assert out.device == torch.device("cuda", 0)
        assert (out.shape[0], *out.shape[2:]) == shape


def test_a_linear_layer_of_a_jagged_tensor() -> None:
    """800 rows become 800 rows of 64 floats, 200 KiB; backward leaves the weight's gradient."""
    with memlens.simulate("A100 40GB"):
        layer = nn.Linear(32, 64, bias=False, device="cuda")
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        x = jagged(300, 500)
        before = torch.cuda.memory_allocated()
        out = layer(x)
        assert torch.cuda.memory_allocated() - before == 800 * 64 * 4
        out.values().sum().backward()
        assert layer.weight.grad.is_cuda
