"""Which tensors are alive, what they are called, and that no byte is missed or counted twice."""

from __future__ import annotations

import gc
import sys

import pytest

pytest.importorskip("torch")

import torch
from tests.support.models_on_cpu import MODELS, StorageCounter
from torch import nn

from memlens.measurement.tensors.watch import Taken, TensorWatch
from memlens.model import Category

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_models")]
CPU = torch.device("cpu")


@pytest.fixture
def watch():
    """A watch of the CPU that has seen what is there, without what other tests left to the collector."""
    gc.collect()
    found = TensorWatch(CPU)
    found.take()
    yield found
    found.close()


def names(tensors: list) -> dict[str, Category]:
    return {tensor.name: tensor.category for tensor in tensors if tensor.name}


@pytest.mark.parametrize(("name", "optimizer"), list(zip(MODELS, 5 * ["SGD", "AdamW"], strict=True)))
def test_totals_equal_an_independent_count(name: str, optimizer: str) -> None:
    """From building to the second optimizer step, live storages add up to what the operators allocated.

    Also before and after each module's forward, recomputed ones during backward included.
    """
    build, shape = MODELS[name]
    gc.collect()
    watch = TensorWatch(CPU)
    before = watch.take().bytes
    points: list[tuple[str, int, int]] = []

    with StorageCounter() as counter:

        def point(where: str) -> None:
            points.append((where, watch.take().bytes - before, counter.bytes))

        torch.manual_seed(0)
        model = build()
        stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
        point("built")
        for path, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, path=path: point(f"before {path}"))
            module.register_forward_hook(lambda *_, path=path: point(f"after {path}"))
        for step in (1, 2):
            x = torch.rand(shape)
            loss = model(x).square().mean()
            point(f"forward {step}")
            loss.backward()
            point(f"backward {step}")
            stepper.step()
            point(f"optimizer {step}")
            stepper.zero_grad()
            point(f"zero_grad {step}")
    watch.close()
    assert [mine for _, mine, _ in points] == [theirs for _, _, theirs in points], points
    assert points[1][1] > points[0][1] > 0


def test_parameters_gradients_and_states_have_names(watch) -> None:
    """After one step of Adam every storage says whose it is: 4 parameters, 4 gradients, 12 states."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    found = names(watch.take().came)
    assert found["1.weight"] is Category.PARAMETER
    assert found["1.weight.grad"] is Category.GRADIENT
    assert found["exp_avg of 1.weight"] is Category.OPTIMIZER_STATE
    kinds = list(found.values())
    counts = [kinds.count(kind) for kind in (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)]
    assert counts == [4, 4, 12]


def test_two_models_are_told_apart(watch) -> None:
    """Of several roots each has its type before the path, numbered from the second on."""
    kept = [nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2)), nn.Linear(3, 3)]
    found = names(watch.take().came)
    assert {"Sequential.0.weight", "Sequential#2.0.weight", "Linear.weight"} <= set(found)
    del kept


def test_parameters_of_no_module_are_named_by_their_optimizer(watch) -> None:
    """A parameter that only an optimizer holds, and its gradient, are seen."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    found = names(watch.take().came)
    assert found["parameter 0 of SGD"] is Category.PARAMETER
    assert found["parameter 0 of SGD.grad"] is Category.GRADIENT
    del optimizer


def test_what_only_autograd_keeps_is_seen(watch) -> None:
    """exp's result has no name in Python, and stays 4,096 bytes until backward."""
    x = torch.ones(32, 32, requires_grad=True)
    loss = x.exp().sum()
    kept = [tensor for tensor in watch.take().came if tensor.category is Category.ACTIVATION]
    assert [(tensor.bytes, tensor.name) for tensor in kept] == [(4096, "saved by ExpBackward0")]
    loss.backward()
    gone = watch.take().gone
    assert [(tensor.bytes, tensor.name) for tensor in gone] == [(4096, "saved by ExpBackward0")]


def test_views_are_counted_once(watch) -> None:
    """Three views of one storage are 4,096 bytes; when only a slice is left it is named a view."""
    whole = torch.ones(32, 32)
    views = [whole[0], whole.t(), whole.view(-1)]
    first = watch.take()
    assert [(tensor.bytes, tensor.view) for tensor in first.came] == [(4096, False)]
    del whole, views
    assert [tensor.bytes for tensor in watch.take().gone] == [4096]
    with torch.inference_mode():  # elsewhere a view keeps the tensor that it is a view of
        part = torch.ones(32, 32)[3]
    second = watch.take().came
    assert [(tensor.bytes, tensor.shape, tensor.view) for tensor in second] == [(4096, (32,), True)]
    del part


@pytest.mark.parametrize(("dtype", "size"), [
    ("bool", 7), ("uint8", 7), ("int16", 14), ("float16", 14), ("bfloat16", 14), ("float8_e4m3fn", 7),
    ("float8_e5m2", 7), ("int32", 28), ("float64", 56), ("complex64", 56), ("complex128", 112),
])  # fmt: skip
def test_every_dtype_has_its_size(watch, dtype: str, size: int) -> None:
    """Seven elements each; a 16-bit integer is two bytes and not 2.67, as it was for Pytorch-Memory-Utils."""
    kept = torch.zeros(7, dtype=getattr(torch, dtype))
    assert [(tensor.bytes, tensor.dtype) for tensor in watch.take().came] == [(size, dtype)]
    del kept


def test_an_address_used_again_is_another_storage(watch) -> None:
    """A tensor that takes the place of a freed one is reported as come, and the freed one as gone."""
    for size in (256, 512, 256):
        x = torch.ones(size)
        taken = watch.take()
        assert [tensor.bytes for tensor in taken.came] == [4 * size]
        del x
    assert [tensor.bytes for tensor in watch.take().gone] == [1024]


def test_accumulating_a_loss_in_place_is_seen(watch) -> None:
    """`total += loss` turns an old leaf into the end of a graph; what it keeps is found."""
    total = torch.zeros(())
    watch.take()
    x = torch.ones(1024, requires_grad=True)
    total += x.exp().sum()
    kept = [tensor for tensor in watch.take().came if tensor.category is Category.ACTIVATION]
    assert [tensor.bytes for tensor in kept] == [4096]


def test_a_graph_that_grows_is_walked_again(watch) -> None:
    """Behind an end that was walked nothing is new; a node put before it keeps 4,096 bytes more."""
    x = torch.ones(1024, requires_grad=True)
    inner = x.exp()
    assert [tensor.category for tensor in watch.take().came].count(Category.ACTIVATION) == 1
    assert not watch.take().came
    loss = inner.sin().exp().sum()
    kept = [tensor for tensor in watch.take().came if tensor.category is Category.ACTIVATION]
    assert [(tensor.bytes, tensor.name) for tensor in kept] == [(4096, "saved by ExpBackward0")]
    del loss


def test_a_parameter_of_the_graph_alone_gets_its_gradient(watch) -> None:
    """No module and no optimizer holds it: the graph, walked before, leads to it and to its gradient."""
    loss = torch.nn.Parameter(torch.ones(1024)).exp().sum()
    assert Category.PARAMETER in [tensor.category for tensor in watch.take().came]
    assert not watch.take().came
    loss.backward(retain_graph=True)
    came = watch.take().came
    assert [(tensor.bytes, tensor.category) for tensor in came] == [(4096, Category.GRADIENT)]


def test_tensors_survive_collections_unseen(watch) -> None:
    """What was young when a collection moved it is still found: the callback looked first."""
    kept = [torch.ones(4) for _ in range(10)]
    gc.collect()
    assert watch.take().bytes >= 160
    assert len([tensor for tensor in watch.take().live if tensor.shape == (4,)]) == 10
    del kept


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(("layout", "sizes"), [
    (torch.sparse_coo, [12, 48]),  # 3 values of 4 bytes, 2 x 3 indices of 8
    (torch.sparse_csr, [12, 32, 48]),  # 4 row starts of 8; the columns are a view of 2 x 3 indices
])  # fmt: skip
def test_sparse_tensors_count_by_their_parts(watch, layout: torch.layout, sizes: list[int]) -> None:
    """A sparse matrix has no storage of its own: its values and indices have."""
    sparse = torch.eye(3).to_sparse(layout=layout)
    assert sorted(tensor.bytes for tensor in watch.take().came) == sizes
    del sparse


def test_odd_tensors_are_no_obstacle(watch) -> None:
    """Lazy parameters, tensors without data and those inside torch.func are looked at or left."""
    kept = [
        nn.LazyLinear(4),
        torch.ones(2, device="meta"),
        torch.zeros(3, dtype=torch.float8_e4m3fn),
        torch.zeros(3, dtype=torch.complex64),
    ]

    def inside(x: torch.Tensor) -> torch.Tensor:
        watch.take()
        return (x * 2).sum()

    torch.vmap(inside)(torch.ones(3, 2))
    torch.func.grad(inside)(torch.ones(3))
    odd = ("complex64", "float8_e4m3fn")
    sizes = sorted((tensor.dtype, tensor.bytes) for tensor in watch.take().live if tensor.dtype in odd)
    assert sizes == [("complex64", 24), ("float8_e4m3fn", 3)]
    del kept


def test_looking_leaves_no_trace() -> None:
    """No collector callback stays behind, collection stays on, no tensor is kept alive, RNG is untouched."""
    callbacks, state = list(gc.callbacks), torch.get_rng_state()
    watch = TensorWatch(CPU)
    x = torch.ones(8)
    watch.take()
    count = sys.getrefcount(x)
    watch.take()
    assert sys.getrefcount(x) == count
    watch.close()
    assert gc.callbacks == callbacks
    assert gc.isenabled()
    assert torch.equal(torch.get_rng_state(), state)


def test_unpack_hooks_are_not_called(watch) -> None:
    """Tensors that hooks packed away are read as they lie there."""
    calls = []

    def unpack(packed: tuple) -> torch.Tensor:
        calls.append(packed)
        return packed[0]

    x = torch.ones(16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t,), unpack):
        loss = x.exp().sum()
    taken: Taken = watch.take()
    assert calls == []
    assert 64 in [tensor.bytes for tensor in taken.came]
    loss.backward()


def test_swapping_parameters_still_works(watch) -> None:
    """Watching holds no weak reference to a parameter: torch refuses to swap tensors that have one."""
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(3))
    gc.collect()
    watch.take()
    torch.utils.swap_tensors(first, second)
    assert first.shape == (3,)
