"""4-bit layers of bitsandbytes: the weight that a product unpacks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
bitsandbytes = pytest.importorskip("bitsandbytes")

from tests.support.asked import asked_in  # noqa: E402

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def layer(nested: bool) -> torch.nn.Module:
    """4,096 to 1,024 features in nf4, on the card."""
    return bitsandbytes.nn.Linear4bit(
        4096, 1024, bias=False, compute_dtype=torch.float16, quant_type="nf4", compress_statistics=nested
    ).to("cuda")


@pytest.mark.parametrize(
    ("nested", "unpacked"), [(False, [8 * MIB]), (True, [MIB // 4, MIB // 4, 8 * MIB])], ids=["one", "two"]
)
def test_a_product_unpacks_its_weight(nested: bool, unpacked: list[int]) -> None:
    """8 MiB of float16 before the 1 MiB result; first the scales of each 64 weights where those are 8-bit."""
    with memlens.simulate(gpu="T4") as sim:
        linear = layer(nested)
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        x = torch.empty(512, 4096, dtype=torch.float16, device="cuda", requires_grad=True)
        asked = asked_in(sim, lambda: linear(x))
        assert asked == [*unpacked, MIB]


def test_a_few_rows_are_multiplied_in_one_kernel() -> None:
    """Four rows: nothing but the result."""
    with memlens.simulate(gpu="T4") as sim:
        linear = layer(False)
        x = torch.empty(4, 4096, dtype=torch.float16, device="cuda", requires_grad=True)
        assert asked_in(sim, lambda: linear(x)) == [4 * 1024 * 2]


def test_unpacked_weights_are_gone_after_the_product() -> None:
    """The result and its input are all that a forward leaves."""
    with memlens.simulate(gpu="T4"):
        linear = layer(True)
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        x = torch.empty(512, 4096, dtype=torch.float16, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        out = linear(x)
        assert torch.cuda.memory_allocated() - before == out.nbytes
