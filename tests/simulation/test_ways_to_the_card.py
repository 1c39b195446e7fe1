"""However a model gets to the card, its bytes are counted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import memlens  # noqa: E402
from memlens.errors import UncountedTensor  # noqa: E402

pytestmark = pytest.mark.torch

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

GPU = torch.device("cuda", 0)
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(300, 200),
    "wide": lambda: nn.Linear(1200, 700, bias=False),
    "convolution": lambda: nn.Conv2d(3, 40, 5),
    "norm": lambda: nn.BatchNorm2d(70),
    "embedding": lambda: nn.Embedding(1000, 33),
    "lstm": lambda: nn.LSTM(20, 30, 2),
    "attention": lambda: nn.MultiheadAttention(32, 4),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, for the ways that write files."""
    monkeypatch.chdir(tmp_path)


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build()


def under(device: object, build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device(device):
        return build()


def by_default(build: Callable[[], nn.Module]) -> nn.Module:
    torch.set_default_device("cuda")
    try:
        return build()
    finally:
        torch.set_default_device(None)


def assigned(build: Callable[[], nn.Module]) -> nn.Module:
    model = on_meta(build)
    model.load_state_dict({name: t.cuda() for name, t in build().state_dict().items()}, assign=True)
    return model


def loaded(build: Callable[[], nn.Module], location: object) -> nn.Module:
    torch.save(build().state_dict(), "loaded.pt")
    model = on_meta(build)
    model.load_state_dict(torch.load("loaded.pt", map_location=location), assign=True)
    return model


def whole(build: Callable[[], nn.Module]) -> nn.Module:
    torch.save(build(), "whole.pt")
    return torch.load("whole.pt", map_location="cuda", weights_only=False)


def saved_there(build: Callable[[], nn.Module]) -> nn.Module:
    torch.save(build().cuda().state_dict(), "there.pt")
    model = on_meta(build)
    model.load_state_dict(torch.load("there.pt"), assign=True)
    return model


def tensor_by_tensor(model: nn.Module, move: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = move(tensor.data)
    return model


def resized(model: nn.Module) -> nn.Module:
    for tensor in model.parameters():
        nbytes = tensor.untyped_storage().nbytes()
        tensor.untyped_storage().resize_(0)
        tensor.untyped_storage().resize_(nbytes)
    return model


def swapped(model: nn.Module) -> nn.Module:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return model.to(device="cuda")
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


WAYS: dict[str, Callable[[Callable[[], nn.Module]], nn.Module]] = {
    "cuda": lambda b: b().cuda(),
    "cuda of an index": lambda b: b().cuda(0),
    "to a name": lambda b: b().to("cuda"),
    "to an index": lambda b: b().to(0),
    "to a device": lambda b: b().to(GPU),
    "to by keyword": lambda b: b().to(device="cuda"),
    "to a device by keyword": lambda b: b().to(device=GPU),
    "to with a dtype": lambda b: b().to("cuda", torch.float64),
    "to by keyword with a dtype": lambda b: b().to(device="cuda", dtype=torch.bfloat16),
    "to without blocking": lambda b: b().to(device="cuda", non_blocking=True),
    "to where a tensor is": lambda b: b().to(torch.zeros(0, device="cuda")),
    "half, then to": lambda b: b().half().to(device="cuda"),
    "cuda, then bfloat16": lambda b: b().cuda().bfloat16(),
    "type": lambda b: b().type("torch.cuda.FloatTensor"),
    "each child": lambda b: nn.Sequential(*(child.to(device="cuda") for child in (b(), b()))),
    "under a device": lambda b: under("cuda", b),
    "under a device's object": lambda b: under(GPU, b),
    "by default": by_default,
    "to_empty": lambda b: on_meta(b).to_empty(device="cuda"),
    "to_empty of an object": lambda b: on_meta(b).to_empty(device=GPU),
    "assigned": assigned,
    "loaded to a name": lambda b: loaded(b, "cuda"),
    "loaded to a device": lambda b: loaded(b, GPU),
    "loaded by a function": lambda b: loaded(b, lambda storage, place: storage.cuda()),
    "loaded by a function with an index": lambda b: loaded(b, lambda storage, place: storage.cuda(0)),
    "loaded by a table": lambda b: loaded(b, {"cpu": "cuda:0"}),
    "loaded whole": whole,
    "saved and loaded": saved_there,
    "a deep copy": lambda b: copy.deepcopy(b().to(device="cuda")),
    "a deep copy, then to": lambda b: copy.deepcopy(b()).to(device="cuda"),
    "shared memory": lambda b: b().share_memory().to(device="cuda"),
    "pinned": lambda b: b()._apply(lambda t: t.pin_memory()).to(device="cuda", non_blocking=True),
    "tensor by tensor": lambda b: tensor_by_tensor(b(), lambda t: t.to(device="cuda")),
    "tensor by tensor, cuda": lambda b: tensor_by_tensor(b(), lambda t: t.cuda()),
    "empty_like": lambda b: tensor_by_tensor(b(), lambda t: torch.empty_like(t, device="cuda")),
    "new_empty": lambda b: tensor_by_tensor(
        b(), lambda t: torch.zeros(0, device="cuda").new_empty(t.shape, dtype=t.dtype)
    ),
    "asarray": lambda b: tensor_by_tensor(b(), lambda t: torch.asarray(t.cpu(), device="cuda")),
    "storages resized": lambda b: resized(b().cuda()),
    "swapped": lambda b: swapped(b()),
    "frozen": lambda b: b().requires_grad_(False).to(device="cuda"),
}


def storage_bytes(model: nn.Module) -> int:
    """Bytes of a model's storages, which are no less than its tensors'."""
    tensors = list({id(t): t for t in (*model.parameters(), *model.buffers())}.values())
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    assert sum(storages.values()) >= sum(t.numel() * t.element_size() for t in tensors)
    return sum(storages.values())


def requested_bytes() -> int:
    """What the live blocks were asked for: without rounding and unsplit remainders."""
    requested: int = torch.cuda.memory_stats()["requested_bytes.all.current"]
    return requested


@given(
    way=st.sampled_from(sorted(WAYS)),
    layers=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=3),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("here")
def test_a_model_is_counted_however_it_comes(way: str, layers: list[str]) -> None:
    """Any model, brought by any of forty ways: its tensors are on the card, and so are their bytes."""
    with memlens.simulate("T4") as sim:
        model = WAYS[way](lambda: nn.Sequential(*(LAYERS[name]() for name in layers)))
        assert {str(p.device) for p in model.parameters()} == {"cuda:0"}
        assert requested_bytes() == storage_bytes(model)
        sim.trace.check()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("here")
def test_each_way_once(way: str) -> None:
    """No way is left to chance."""
    with memlens.simulate("T4"):
        model = WAYS[way](lambda: nn.Sequential(nn.Linear(1200, 700), nn.BatchNorm1d(700)))
        assert requested_bytes() == storage_bytes(model) > 0


def test_a_lazy_layer_waits_on_the_card() -> None:
    """Moved before its first forward, it gets its weights on the card: 4 x 3 floats and 4, two blocks."""
    with memlens.simulate("T4"):
        layer = nn.LazyLinear(4).to(device="cuda")
        assert torch.cuda.memory_allocated() == 0
        layer.initialize_parameters(torch.zeros(2, 3, device="cuda"))
        assert (layer.weight.device, layer.weight.shape) == (GPU, (4, 3))
        assert torch.cuda.memory_allocated() == 1024


def test_a_storage_hidden_from_the_ledger_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that forgets to count is an error that names the line, at the next operator."""
    with memlens.simulate("T4") as sim:
        lost = torch.ones(512, 512, device="cuda")
        del sim.ledger.storages[lost.untyped_storage()._cdata]
        with pytest.raises(UncountedTensor, match=r"mm at .*test_ways_to_the_card.py:\d+ uses .*1.00 MiB"):
            lost @ torch.ones(512, 512, device="cuda")


def test_a_hidden_parameter_is_found_at_the_end() -> None:
    """The same where no operator meets it any more: an optimizer holds it."""
    with pytest.raises(UncountedTensor, match=r"SGD uses a tensor of 1\.00 MiB"):  # noqa: PT012, SIM117
        with memlens.simulate("T4") as sim:
            weight = nn.Parameter(torch.ones(512, 512, device="cuda"))
            optimizer = torch.optim.SGD([weight], 0.1)
            weight.sum().backward()
            optimizer.step()
            del sim.ledger.storages[weight.untyped_storage()._cdata]
