"""Tensors that other libraries or other cards are to have."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.cuda import comm  # noqa: E402
from torch.utils import dlpack  # noqa: E402

import memlens  # noqa: E402
from memlens.errors import UnsupportedOperator, UsageError  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "share",
    [
        lambda x: dlpack.to_dlpack(x),
        lambda x: torch.to_dlpack(x),
        lambda x: x.__dlpack__(),
        lambda x: x.__cuda_array_interface__,
    ],
    ids=["to_dlpack", "torch.to_dlpack", "__dlpack__", "__cuda_array_interface__"],
)
def test_memory_that_is_not_there_is_not_shared(share) -> None:
    """Another library would read it: said, with a way out."""
    with memlens.simulate("T4"):
        x = torch.ones(4, device="cuda")
        with pytest.raises(UnsupportedOperator, match=r"another library.*\n.*\.cpu\(\)"):
            share(x)


def test_torch_itself_gets_a_view() -> None:
    """`from_dlpack` of a simulated tensor takes no memory; a copy takes as much again."""
    with memlens.simulate("T4"):
        x = torch.ones(1024, device="cuda")
        assert x.__dlpack_device__() == (2, 0)
        view = torch.from_dlpack(x)
        assert view.is_cuda
        assert torch.cuda.memory_allocated() == 4096
        copy = torch.from_dlpack(x, copy=True)
        assert torch.cuda.memory_allocated() == 8192
        assert copy.data_ptr() != view.data_ptr()


def test_the_host_shares_as_ever() -> None:
    """A small host tensor is real."""
    with memlens.simulate("T4"):
        x = torch.arange(3)
        assert dlpack.from_dlpack(dlpack.to_dlpack(x)).tolist() == [0, 1, 2]
        assert torch.from_dlpack(x).data_ptr() == x.data_ptr()


def test_copies_to_the_only_card_are_there_already() -> None:
    """Broadcast and scatter to card 0 take nothing; gathering makes one tensor of all."""
    with memlens.simulate("T4"):
        x = torch.ones(1024, device="cuda")
        assert comm.broadcast(x, [0])[0] is x
        assert comm.broadcast_coalesced([x], [0])[0][0] is x
        assert torch.nn.parallel.comm.scatter(x, [0])[0] is x
        assert comm.reduce_add([x]) is x
        assert torch.cuda.memory_allocated() == 4096
        whole = comm.gather([x, x])
        assert (whole.shape, torch.cuda.memory_allocated()) == ((2048,), 4096 + 8192)
        assert comm.gather([x, x], destination="cpu").device.type == "cpu"
        target = torch.zeros(1024, device="cuda")
        assert comm.broadcast(x, out=[target])[0] is target


@pytest.mark.parametrize("name", ["broadcast", "broadcast_coalesced", "scatter", "reduce_add"])
def test_other_cards_are_refused(name: str) -> None:
    """There is one."""
    with memlens.simulate("T4"):
        x = torch.ones(4, device="cuda")
        arguments = ([x, x],) if name == "reduce_add" else ([x] if "coalesced" in name else x, [0, 1])
        with pytest.raises(UsageError, match="the simulation has one GPU"):
            getattr(comm, name)(*arguments)
