"""Programs that are odd but legal: each runs, leaves nothing on the card, and leaves torch as it was."""

from __future__ import annotations

import copy
import gc
import io
import warnings
from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import memlens
from memlens.errors import MemlensError, UnsupportedOperator
from memlens.model import Category

pytestmark = pytest.mark.torch
PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


def ones(*shape: int, **options: object) -> torch.Tensor:
    return torch.ones(*shape, device="cuda", **options)


@program
def nothing_in_them() -> None:
    joined = torch.cat([torch.empty(0, 5, device="cuda"), ones(3, 5)])
    assert joined.shape == (3, 5)
    joined[0:0].mean()


@program
def single_numbers() -> None:
    number = torch.tensor(3.0, device="cuda", requires_grad=True)
    (number * number).backward()
    assert number.grad is not None
    float(number.grad), bool(number.detach() > 1), [1, 2, 3][torch.tensor(1, device="cuda")]


@program
def overlapping_views() -> None:
    wide = torch.empty_strided((4, 4), (1000, 1), device="cuda")
    wide.as_strided((2, 2), (1, 1)).add_(1)
    wide.t().contiguous(), wide.expand(7, 4, 4).sum()


@program
def results_into_given_tensors() -> None:
    a, empty = ones(8, 8), torch.empty(0, device="cuda")
    torch.mm(a, a, out=torch.empty(8, 8, device="cuda"))
    torch.mul(a, 2, out=empty)
    assert empty.shape == (8, 8)


@program
def storages_that_change() -> None:
    a, b = torch.empty(4, device="cuda"), ones(10)
    a.resize_(1000)
    a.set_(b)
    b.untyped_storage().resize_(0)
    parameter = nn.Parameter(ones(1000))
    parameter.data = torch.empty(0, device="cuda")


@program
def views_outlive_their_base() -> None:
    base = ones(1024, 1024)
    view = base[10:][:, 5:]
    del base
    turned = view.t()
    del view
    assert torch.cuda.memory_allocated() == 4 << 20
    del turned
    assert torch.cuda.memory_allocated() == 0


@program
def numbers_of_every_kind() -> None:
    for dtype in (torch.complex64, torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.float64):
        kind = ones(16, 16, dtype=dtype)
        kind.clone(), (kind == kind).all()
    small = ones(32, 32).to(torch.float8_e4m3fn)
    scale = torch.tensor(1.0, device="cuda")
    torch._scaled_mm(small, small.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    waves = torch.randn(8, 8, dtype=torch.complex64, device="cuda", requires_grad=True)
    (waves @ waves).abs().sum().backward()


@program
def random_generators() -> None:
    mine = torch.Generator("cuda").manual_seed(3)
    torch.randn(4, device="cuda", generator=mine), torch.randperm(10, device="cuda", generator=mine)
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())


@program
def the_old_amp() -> None:
    model = nn.Linear(16, 16).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler = torch.cuda.amp.GradScaler()
        for _ in range(2):
            with torch.cuda.amp.autocast():
                loss = model(ones(4, 16)).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()


@program
def streams_and_events() -> None:
    side, data = torch.cuda.Stream(), ones(1 << 20)
    with torch.cuda.stream(side):
        (data * 2).record_stream(torch.cuda.current_stream())
    data.record_stream(side)
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    torch.cuda.current_stream().wait_stream(side)


@program
def copies_and_files() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).cuda()
    assert next(copy.deepcopy(model).parameters()).is_cuda
    torch.save(model.state_dict(), file := io.BytesIO())
    file.seek(0)
    assert torch.load(file, map_location="cuda")["0.weight"].is_cuda


@program
def weights_made_of_weights() -> None:
    from torch.nn.utils import parametrizations, spectral_norm, weight_norm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old weight_norm is deprecated; vocoders still use it
        models = [weight_norm(nn.Linear(8, 8)), spectral_norm(nn.Linear(8, 8))]
    models += [parametrizations.weight_norm(nn.Linear(8, 8)), parametrizations.orthogonal(nn.Linear(8, 8))]
    for model in models:
        model.cuda()(ones(2, 8)).sum().backward()


@program
def averages_of_weights() -> None:
    from torch.optim.swa_utils import AveragedModel, update_bn

    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).cuda()
    average = AveragedModel(model)
    average.update_parameters(model)
    update_bn([torch.randn(4, 8)] * 2, average, device="cuda")


@program
def functional_gradients() -> None:
    from torch.func import functional_call, grad, hessian, jacrev, vmap

    model, x = nn.Linear(4, 4).cuda(), ones(3, 4)
    parameters = dict(model.named_parameters())
    vmap(grad(lambda p, row: functional_call(model, p, (row,)).sum()), in_dims=(None, 0))(parameters, x)
    jacrev(torch.square)(x[0]), hessian(lambda row: (row**3).sum())(x[0])


@program
def a_loader_with_workers_and_pinned_batches() -> None:
    data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))
    for workers in (0, 2):
        for x, y in DataLoader(data, 8, num_workers=workers, pin_memory=True):
            F.cross_entropy(x.cuda(non_blocking=True) @ ones(4, 3), y.to("cuda"))


@program
def hooks_see_the_card() -> None:
    seen: set[str] = set()
    model = nn.Linear(4, 4).cuda()
    model.register_forward_hook(lambda module, inputs, output: seen.add(str(output.device)))
    model.register_full_backward_hook(lambda module, inward, outward: seen.add(str(outward[0].device)))
    model.weight.register_hook(lambda gradient: seen.add(str(gradient.device)))
    model(ones(2, 4, requires_grad=True)).sum().backward()
    assert seen == {"cuda:0"}


@program
def printed() -> None:
    assert "device='cuda:0'" in repr(ones(3, 4))
    f"{ones(3).sum()} {ones(3).mean().item():.3f}"


@program
def numpy_refuses_as_cuda_does() -> None:
    ones(4).cpu().numpy(), ones(4).tolist()
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        ones(4).numpy()


@program
def built_under_a_device() -> None:
    with torch.device("cuda"):
        model = nn.Linear(4, 4)
    with torch.inference_mode():
        assert model(ones(2, 4)).is_cuda


@program
def types_from_before_devices() -> None:
    assert torch.cuda.FloatTensor(3, 4).shape == (3, 4)
    assert isinstance(torch.cuda.LongTensor([1]), torch.cuda.LongTensor)
    assert torch.ones(3).type("torch.cuda.HalfTensor").dtype is torch.half
    assert not ones(3).type(torch.LongTensor).is_cuda
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        assert torch.ones(3).is_cuda
        torch.set_default_tensor_type("torch.FloatTensor")


@program
def tags_on_parameters_stay() -> None:
    model = nn.Linear(4, 4)
    model.weight.no_decay = True  # type: ignore[attr-defined]
    assert hasattr(model.cuda().weight, "no_decay")


@program
def a_circle_is_collected() -> None:
    circle: list[object] = [ones(1 << 18)]
    circle.append(circle)


@program
def training_without_an_optimizer() -> None:
    weight = ones(64, requires_grad=True)
    for _ in range(2):
        (weight**2).sum().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad = None


def state() -> list[object]:
    """What a simulation could forget to put back."""
    return [
        torch.cuda.is_available(), torch.cuda.memory_allocated, torch.Tensor.record_stream,
        torch.set_default_tensor_type, torch.get_default_device(), torch.get_default_dtype(),
        torch.is_autocast_enabled("cuda"), torch.is_grad_enabled(), torch.get_rng_state().tolist(),
        vars(torch.cuda)["FloatTensor"], torch._C._len_torch_function_stack(),
    ]  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func's own
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning")
def test_an_odd_program(name: str) -> None:
    """It runs; only cuBLAS's workspaces outlive its tensors; sums close; torch is what it was."""
    torch.manual_seed(0)
    before = state()
    with memlens.simulate("A100 40GB") as sim:
        PROGRAMS[name]()
        gc.collect()
        kept = torch.cuda.memory_allocated()
    sim.trace.check()
    last = len(sim.trace.events) - 1
    assert kept == sim.trace.breakdown(last).by_category().get(Category.WORKSPACE, 0)
    assert state() == before


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ("torch.ones(3, device='cuda:1')", MemlensError, "one GPU, cuda:0"),
        (
            "torch.nested.nested_tensor([torch.ones(3)], device='cuda')",
            UnsupportedOperator,
            "nested or sparse",
        ),
        ("torch.cuda.CUDAGraph()", UnsupportedOperator, "CUDA graphs are not simulated"),
        ("torch.eye(4).to_sparse().cuda().exp()", UnsupportedOperator, "sparse"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_what_is_not_simulated_is_said(source: str, error: type[Exception], says: str) -> None:
    """An error of ours with a way out, not one of torch's about a build without CUDA; then all goes on."""
    with memlens.simulate("T4"), pytest.raises(error, match=f"(?i){says}"):
        eval(source)
    with memlens.simulate("T4"):
        assert ones(3).is_cuda


def test_a_module_from_outside_comes_back_whole() -> None:
    """Its weights, running statistics, gradients and attributes are what they were; also after an error."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    model[0].weight.grad = torch.full((8, 8), 7.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def train_and_fail() -> None:
        with memlens.simulate("T4"):
            model.cuda()(ones(2, 8)).sum().backward()
            assert model[1].running_mean.is_cuda
            assert model[0].weight.grad.is_cuda
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_and_fail()
    assert {str(value.device) for value in model.state_dict().values()} == {"cpu"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.full((8, 8), 7.0))
    model(torch.ones(2, 8)).sum().backward()
