"""Outputs whose size depends on data: known where the data is, else bounded, else refused by name."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.errors import UnsupportedOperator  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("name", "shape", "function"),
    [
        ("nonzero", (256, 2), lambda x: x.nonzero()),
        ("nonzero", (256, 2), lambda x: torch.argwhere(x)),
        ("nonzero", (256,), lambda x: torch.where(x > 0)[0]),
        ("index", (256,), lambda x: x[x > 0]),
        ("index", (16, 16), lambda x: x[x[0] > 0]),
        ("masked_select", (256,), lambda x: torch.masked_select(x, x > 0)),
        ("_unique2", (256,), lambda x: x.unique()),
        ("unique_consecutive", (256,), lambda x: torch.unique_consecutive(x)),
        ("unique_dim", (16, 16), lambda x: torch.unique(x, dim=0)),
    ],
)
def test_a_bound_is_taken_and_said(name: str, shape: tuple, function) -> None:
    """Everything is kept; the assumption names the operator and the line, and could only mean less."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        found = function(torch.randn(16, 16, device="cuda"))
        assert tuple(found.shape) == shape
        assert found.is_cuda
    (told,) = sim.trace.assumptions
    assert told.what.startswith(f"{name} at ")
    assert "test_data_dependent.py" in told.what
    assert told.low_bytes < 0 == told.high_bytes


def test_unique_gives_what_was_asked_for() -> None:
    """Inverse in the input's shape, counts as long as the values."""
    with memlens.simulate(gpu="A100 40GB"):
        values, inverse, counts = torch.randn(16, 16, device="cuda").unique(
            return_inverse=True, return_counts=True
        )
        assert (values.shape, inverse.shape, counts.shape) == ((256,), (16, 16), (256,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.bincount(x.long().view(-1)),
        lambda x: torch.repeat_interleave(x, x[0].long(), dim=0),
    ],
)
def test_without_a_bound_the_line_is_named(function) -> None:
    """The largest value, or the sum of all, is not computed: refused, with a way out."""
    with (
        memlens.simulate(gpu="A100 40GB"),
        pytest.raises(UnsupportedOperator, match="test_data_dep") as error,
    ):
        function(torch.randn(16, 16, device="cuda"))
    assert "=" in error.value.hint


def test_the_caller_may_give_the_bound() -> None:
    """`minlength` and `output_size` say it."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.randn(16, 16, device="cuda")
        assert torch.bincount(x.long().view(-1), minlength=50).shape == (50,)
        repeats = x[0].long()
        assert torch.repeat_interleave(x, repeats, dim=0, output_size=40).shape == (40, 16)


def test_known_data_gives_the_size() -> None:
    """Masks and lengths that came from the host, and what is computed from them, need no assumption."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        lengths = torch.tensor([3, 7, 5]).cuda()
        mask = torch.arange(8, device="cuda")[None] < lengths[:, None]
        x = torch.randn(3, 8, 4, device="cuda")
        assert x[mask].shape == (15, 4)
        assert mask.nonzero().shape == (15, 2)
        assert torch.repeat_interleave(x[0, 0, :3], lengths).shape == (15,)
        assert torch.bincount(lengths).shape == (8,)
        assert lengths.max().item() == 7
        assert lengths.cumsum(0).tolist() == [3, 10, 15]
        assert not mask.all()
        assert torch.ones(3, 8, dtype=torch.long, device="cuda").bool().all()
        x[:, 0] = 0
    assert sim.trace.assumptions == []


def test_what_is_written_to_is_no_longer_known() -> None:
    """After an in-place operator on unknown data the stand-in is back."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        mask = torch.ones(8, dtype=torch.bool, device="cuda")
        assert mask.all()
        mask &= torch.randn(8, device="cuda") > 0
        assert not mask.all()
    assert len(sim.trace.assumptions) == 1
    with memlens.simulate(gpu="A100 40GB") as sim:
        mask = torch.ones(8, dtype=torch.bool, device="cuda")
        torch.gt(torch.randn(8, device="cuda"), 0, out=mask)
        assert not mask.all()
    assert len(sim.trace.assumptions) == 1


def test_a_mask_of_the_host_selects_on_the_device() -> None:
    """Its true elements are counted."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.randn(4, 8, device="cuda", requires_grad=True)
        chosen = x[torch.tensor([True, False, True, True])]
        assert chosen.shape == (3, 8)
        chosen.sum().backward()
        assert x.grad.shape == (4, 8)
    assert sim.trace.assumptions == []


def test_checks_that_all_is_well_are_taken_to_pass() -> None:
    """Distributions find their parameters valid; `any`, which looks for trouble, finds none."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.randn(4, 5, device="cuda")
        checked = {"validate_args": True}  # by default, until torch.compile switches it off for good
        assert torch.distributions.Categorical(logits=x, **checked).sample().shape == (4,)
        assert torch.distributions.Normal(x, x.exp(), **checked).rsample().shape == (4, 5)
        assert not torch.isnan(x).any()
        window = torch.hann_window(128, device="cuda")
        spectrum = torch.stft(torch.randn(1024, device="cuda"), 128, window=window, return_complex=True)
        assert torch.istft(spectrum, 128, window=window).shape == (1024,)
    reads = [told.what for told in sim.trace.assumptions if "read from the device" in told.what]
    assert [read.split()[-1] for read in reads] == ["True", "True", "False", "False"]


@pytest.mark.zoo
def test_boxes_are_all_kept() -> None:
    """torchvision's nms keeps at most every box, and its other operators have fixed sizes."""
    ops = pytest.importorskip("torchvision").ops
    with memlens.simulate(gpu="A100 40GB") as sim:
        boxes = torch.randn(100, 4, device="cuda")
        assert ops.nms(boxes, torch.randn(100, device="cuda"), 0.5).shape == (100,)
        features = torch.randn(1, 16, 32, 32, device="cuda")
        assert ops.roi_align(features, torch.randn(10, 5, device="cuda"), 7).shape == (10, 16, 7, 7)
    assert [told.what.split()[0] for told in sim.trace.assumptions] == ["nms"]


def test_a_training_is_healthy() -> None:
    """No number is NaN or infinite, however that is asked; a condition on data is not taken to be true."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.randn(300, 300, device="cuda")
        isnan, isinf, loss = torch.isnan(x), x.isinf(), x.sum()
        well = [x.mean().isfinite(), torch.isfinite(x).all(), torch.isfinite(x).any(1).all(), ~isnan.any()]
        ill = [
            ~torch.isfinite(x.mean()), isnan.any(), (isnan | isinf).any(), loss != loss,
            isnan.sum() > 0, isnan.float().mean() > 0, torch.count_nonzero(isinf) != 0,
            isnan.cpu().numpy().any(), torch.isnan(loss),
        ]  # fmt: skip
        answers = [bool(one) for one in well], [bool(one) for one in ill]
        assert list(sim.values.conditions) == []
        answers[0].append(bool((torch.isfinite(x) & (x > 0)).all()))
    assert answers == ([True] * 4 + [False], [False] * 9)
    assert len(sim.values.conditions) == 1


def test_gradients_do_not_overflow() -> None:
    """A loop that scales by hand reads 0, and steps."""
    with memlens.simulate(gpu="A100 40GB"):
        weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(weight.sum()).backward()
        optimizer = torch.optim.SGD([weight], 0.1)
        scaler.unscale_(optimizer)
        assert [found.item() for found in scaler._found_inf_per_device(optimizer).values()] == [0.0]
