"""`torch.cuda.FloatTensor` and its kin, as programs from before `device=` use them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

import numpy
import torch
from torch.autograd import Variable

import memlens

pytestmark = pytest.mark.torch

CARD, HOST = "cuda", "cpu"
F32, F16, F64, I64 = torch.float32, torch.float16, torch.float64, torch.int64


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape).cuda()


# what makes a tensor, and where it is then, of which dtype and shape
MADE: dict[str, tuple[Callable[[], Any], tuple[str, torch.dtype, tuple[int, ...]]]] = {
    "sizes": (lambda: torch.cuda.HalfTensor(2, 3), (CARD, F16, (2, 3))),
    "a size": (lambda: torch.cuda.LongTensor(ones(4, 5).size()), (CARD, I64, (4, 5))),
    "numpy's number": (lambda: torch.cuda.FloatTensor(numpy.int64(7)), (CARD, F32, (7,))),
    "nothing": (lambda: torch.cuda.BoolTensor(), (CARD, torch.bool, (0,))),
    "an array": (lambda: torch.cuda.FloatTensor(numpy.zeros((6, 4))), (CARD, F32, (6, 4))),
    "arrays": (lambda: torch.cuda.DoubleTensor([numpy.zeros(3)] * 2), (CARD, F64, (2, 3))),
    "nested lists": (lambda: torch.cuda.IntTensor([[1, 2]]), (CARD, torch.int32, (1, 2))),
    "a range": (lambda: torch.cuda.ByteTensor(range(4)), (CARD, torch.uint8, (4,))),
    "a tensor": (lambda: torch.cuda.FloatTensor(ones(3)), (CARD, F32, (3,))),
    "filled": (lambda: torch.cuda.BFloat16Tensor(2, 3).fill_(1.5), (CARD, torch.bfloat16, (2, 3))),
    "a variable": (lambda: Variable(torch.cuda.FloatTensor(2).normal_()), (CARD, F32, (2,))),
    "one hot": (
        lambda: torch.cuda.FloatTensor(2, 5).zero_().scatter_(1, torch.cuda.LongTensor([[1], [2]]), 1),
        (CARD, F32, (2, 5)),
    ),
    "type": (lambda: torch.from_numpy(numpy.zeros(3)).type(torch.cuda.FloatTensor), (CARD, F32, (3,))),
    "type by name": (lambda: torch.zeros(3).type("torch.cuda.HalfTensor"), (CARD, F16, (3,))),
    "type of another": (lambda: torch.zeros(3).type(ones(1).half().type()), (CARD, F16, (3,))),
    "type of the host": (lambda: ones(3).type(torch.LongTensor), (HOST, I64, (3,))),
    "new by size": (lambda: ones(3).new(2, 4), (CARD, F32, (2, 4))),
    "new by list": (lambda: ones(3).long().new([1, 2]), (CARD, I64, (2,))),
    "new by array": (lambda: ones(3).new(numpy.zeros((2, 2))), (CARD, F32, (2, 2))),
    "new of the host": (lambda: torch.zeros(3).new(2, 4), (HOST, F32, (2, 4))),
    "new_tensor": (lambda: ones(3).new_tensor([1, 2]), (CARD, F32, (2,))),
    "new_tensor elsewhere": (lambda: ones(3).new_tensor([1], device="cpu", dtype=I64), (HOST, I64, (1,))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
@pytest.mark.parametrize("how", MADE)
def test_it_is_where_it_would_be(how: str) -> None:
    """Device, dtype and shape are those of PyTorch, and what is on the card is counted."""
    make, (place, dtype, shape) = MADE[how]
    with memlens.simulate(gpu="T4"):
        before = torch.cuda.memory_allocated()
        tensor = make()
        assert (tensor.device.type, tensor.dtype, tuple(tensor.shape)) == (place, dtype, shape)
        assert (torch.cuda.memory_allocated() > before) == (place == CARD and tensor.numel() > 0)


def test_data_is_known() -> None:
    """What was made of data on the host can be read again."""
    with memlens.simulate(gpu="T4"):
        assert torch.cuda.FloatTensor([3.5])[0].item() == 3.5
        assert torch.cuda.LongTensor(numpy.array([1, 7])).max().item() == 7


def test_they_are_types() -> None:
    """Of a device and a dtype both."""
    with memlens.simulate(gpu="T4"):
        kind = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
        assert kind.is_cuda
        assert isinstance(ones(2), kind)
        assert not isinstance(ones(2).half(), kind)
        assert not isinstance(torch.ones(2), kind)
        assert not isinstance(ones(2), torch.FloatTensor)
        assert isinstance(ones(2).long(), (torch.cuda.ByteTensor, torch.cuda.LongTensor))


def test_as_the_default() -> None:
    """`torch.Tensor(...)` and factories follow it, types that name the host do not; then it ends."""
    with memlens.simulate(gpu="T4"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        made = [torch.Tensor(3, 2), torch.Tensor([1, 2]), torch.zeros(3), torch.nn.Linear(2, 2).weight]
        assert [one.device.type for one in made] == [CARD] * 4
        assert torch.FloatTensor(2).device.type == HOST
        torch.set_default_tensor_type("torch.FloatTensor")
        assert torch.Tensor(2).device.type == HOST
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert "__new__" not in vars(torch.Tensor)
