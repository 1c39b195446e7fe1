"""Host and device tensors in one operator: PyTorch's error, or, where it is legal, the result."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import memlens  # noqa: E402

pytestmark = pytest.mark.torch

TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
ARGUMENT = "Expected all tensors to be on the same device, but got {} is on cpu, different from other"


def _host(*shape: int, size: str, **options):
    """A host tensor: a small one is real, a large one has no data."""
    rows = 1024 if size == "large" else 1
    return torch.ones(shape[0] * rows, *shape[1:], **options)


def _device(*shape: int, size: str, **options):
    return _host(*shape, size=size, **options).cuda()


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize(
    ("words", "mixed"),
    [
        (TWO_DEVICES, lambda c, h: c + h),
        (TWO_DEVICES, lambda c, h: h + c),
        (TWO_DEVICES, lambda c, h: c.add_(h)),
        (TWO_DEVICES, lambda c, h: h.add_(c)),
        (TWO_DEVICES, lambda c, h: torch.where(c > 0, c, h)),
        (ARGUMENT.format("mat2"), lambda c, h: c @ h.t()),
        (ARGUMENT.format("mat2"), lambda c, h: F.linear(c, h)),
        (ARGUMENT.format("mat2"), lambda c, h: torch.bmm(c[None], h.t()[None])),
        (
            ARGUMENT.format("weight"),
            lambda c, h: F.embedding(torch.zeros(4, device="cuda", dtype=torch.long), h),
        ),
        (ARGUMENT.format("tensors"), lambda c, h: torch.cat([c, h])),
        (ARGUMENT.format("weight"), lambda c, h: F.layer_norm(c, (512,), h[0])),
        (ARGUMENT.format("weight"), lambda c, h: F.batch_norm(c, None, None, h[0], h[1], training=True)),
        (ARGUMENT.format("target"), lambda c, h: F.mse_loss(c, h)),
        (ARGUMENT.format("target"), lambda c, h: F.smooth_l1_loss(c, h)),
        (ARGUMENT.format("target"), lambda c, h: F.binary_cross_entropy(c, h)),
        (TWO_DEVICES, lambda c, h: c.index_put_((torch.arange(512, device="cuda"),), h[:512])),
        (TWO_DEVICES, lambda c, h: c[c[:, 0] > 0].index_put((torch.tensor([0, 1]),), h[:2])),
    ],
)
def test_two_devices_are_refused_in_pytorchs_words(size: str, words: str, mixed) -> None:
    """Elementwise, products, embedding, concatenation, normalization; small and large host tensors."""
    with memlens.simulate(gpu="A100 40GB"):
        tensors = _device(512, 512, size=size), _host(512, 512, size=size)
        with pytest.raises(RuntimeError) as error:
            mixed(*tensors)
    assert str(error.value).startswith(words)


def test_a_module_left_on_the_host_is_refused() -> None:
    """The commonest mistake: the input was moved, the model was not, or the other way round."""
    with memlens.simulate(gpu="A100 40GB"):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            nn.Linear(8, 8)(torch.zeros(2, 8, device="cuda"))
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            nn.Linear(8, 8).cuda()(torch.zeros(2, 8))


def test_a_convolution_names_both_types() -> None:
    """Input and weight, either of them on the host."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = nn.Conv2d(3, 4, 3)
        words = (
            r"Input type \(torch.cuda.FloatTensor\) and weight type \(torch.FloatTensor\) should be the same"
        )
        with pytest.raises(RuntimeError, match=words):
            layer(torch.zeros(1, 3, 8, 8, device="cuda"))
        words = (
            r"Input type \(torch.FloatTensor\) and weight type \(torch.cuda.FloatTensor\) should be the same"
        )
        with pytest.raises(RuntimeError, match=words):
            layer.cuda()(torch.zeros(1, 3, 8, 8))


def test_a_recurrent_network_names_what_was_left_behind() -> None:
    """Its weights, or the state that it is given, on the host."""
    words = r"Input and {0} tensors are not at the same device, .* at cuda:0 and {0} tensor at cpu"
    with memlens.simulate(gpu="A100 40GB"):
        x, network = torch.zeros(2, 3, 8, device="cuda"), nn.GRU(8, 8)
        with pytest.raises(RuntimeError, match=words.format("parameter")):
            network(x, torch.zeros(1, 3, 8, device="cuda"))
        with pytest.raises(RuntimeError, match=words.format("hidden")):
            network.cuda()(x, torch.zeros(1, 3, 8))


def test_attention_names_three_devices() -> None:
    """`scaled_dot_product_attention` checks before it chooses a kernel."""
    with memlens.simulate(gpu="A100 40GB"):
        query, key = torch.zeros(1, 2, 8, 8, device="cuda"), torch.zeros(1, 2, 8, 8)
        with pytest.raises(RuntimeError, match=r"query\.device: cuda:0 key\.device: cpu"):
            F.scaled_dot_product_attention(query, key, key)


def test_indices_of_the_device_do_not_index_the_host() -> None:
    """The reverse, host indices into a device tensor, is legal."""
    with memlens.simulate(gpu="A100 40GB"):
        host, device = torch.ones(8, 8), torch.ones(8, 8, device="cuda")
        with pytest.raises(RuntimeError, match="indices should be either on cpu"):
            host[torch.zeros(2, dtype=torch.long, device="cuda")]
        assert device[torch.tensor([0, 1])].is_cuda


@pytest.mark.parametrize(
    "legal",
    [
        lambda c: c + torch.tensor(2.0),
        lambda c: torch.tensor(2.0) * c,
        lambda c: c ** torch.tensor(2),
        lambda c: torch.where(c > 0, c, torch.tensor(0.0)),
        lambda c: torch.lerp(c, c, torch.tensor(0.5)),
        lambda c: c.clamp(torch.tensor(0.0)),
        lambda c: c.masked_fill(c > 0, torch.tensor(1.0)),
        lambda c: c[torch.tensor([0, 1])],
        lambda c: c[torch.tensor([0, 1]), torch.tensor([1, 1])],
        lambda c: c[torch.tensor([True] * 4 + [False] * 4)],
        lambda c: c.index_put((torch.tensor([0]),), torch.tensor(1.0)),
        lambda c: c.copy_(torch.ones(8, 8)),
    ],
)
def test_numbers_indices_and_copies_of_the_host_are_legal(legal) -> None:
    """They give tensors of the device."""
    with memlens.simulate(gpu="A100 40GB"):
        assert legal(torch.ones(8, 8, device="cuda")).is_cuda


def test_rows_are_set_from_the_host() -> None:
    """Assignment copies: numbers, rows, and back to the host."""
    with memlens.simulate(gpu="A100 40GB"):
        device, host = torch.ones(8, 8, device="cuda"), torch.ones(8, 8)
        device[0] = torch.ones(8)
        device[1] = torch.tensor(2.0)
        assert host.copy_(device).device.type == "cpu"
        large = torch.ones(2048, 2048)
        assert large.copy_(large.cuda()).device.type == "cpu"
