"""What surrounds tensors: files, copies, printing, functional transforms, contexts."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import memlens  # noqa: E402
from memlens.errors import UnsupportedOperator, UsageError  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def test_loading_puts_tensors_where_map_location_says(tmp_path) -> None:
    """To the device, or to the host, real; a saved module comes back whole."""
    saved, module = tmp_path / "state.pt", tmp_path / "module.pt"
    torch.save(nn.Linear(1024, 1024).state_dict(), saved)
    torch.save(nn.Linear(4, 4), module)
    with memlens.simulate(gpu="A100 40GB"):
        state = torch.load(saved, map_location="cuda")
        assert state["weight"].is_cuda
        assert torch.cuda.memory_allocated() == 4 * MIB + 4096
        assert torch.load(saved)["bias"].device.type == "cpu"
        assert torch.load(saved, map_location=lambda storage, location: storage)["bias"].device.type == "cpu"
        whole = torch.load(module, map_location=torch.device("cuda", 0), weights_only=False)
        assert whole.weight.is_cuda
        assert isinstance(whole.weight, nn.Parameter)


def test_a_file_is_not_overwritten_with_shapes(tmp_path) -> None:
    """A checkpoint on disk stays what it is, and the simulation says so; host tensors are saved as ever."""
    path, host = tmp_path / "best.pt", tmp_path / "host.pt"
    path.write_bytes(b"precious")
    with memlens.simulate(gpu="A100 40GB") as sim:
        torch.save({"model": nn.Linear(8, 8).cuda().state_dict()}, path)
        torch.save({"step": torch.tensor(3)}, host)
    assert path.read_bytes() == b"precious"
    assert torch.load(host)["step"] == 3
    assert sim.trace.assumptions[0].what.endswith(f"left {path} as it was")


def test_a_buffer_in_memory_keeps_shapes() -> None:
    """Saved to memory and loaded again: on the device, with its bytes."""
    with memlens.simulate(gpu="A100 40GB"):
        buffer = io.BytesIO()
        torch.save(nn.Linear(1024, 1024, bias=False).cuda().state_dict(), buffer)
        buffer.seek(0)
        assert torch.cuda.memory_allocated() == 0
        state = torch.load(buffer)
        assert state["weight"].is_cuda
        assert torch.cuda.memory_allocated() == 4 * MIB


def test_pickling_is_refused_in_one_sentence() -> None:
    """There is no data to pickle."""
    with memlens.simulate(gpu="A100 40GB"), pytest.raises(UsageError, match="has no data"):
        pickle.dumps(torch.ones(4, device="cuda"))


def test_copies_and_states_live_on_the_device() -> None:
    """`deepcopy` doubles the bytes; `load_state_dict` takes states of the host and of the device."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = nn.Linear(1024, 1024, bias=False).cuda()
        twin = copy.deepcopy(layer)
        assert twin.weight.is_cuda
        assert isinstance(twin.weight, nn.Parameter)
        assert torch.cuda.memory_allocated() == 8 * MIB
        layer.load_state_dict(twin.state_dict())
        layer.load_state_dict({"weight": torch.zeros(1024, 1024)})
        assert layer.weight.is_cuda
        assert torch.cuda.memory_allocated() == 8 * MIB


def test_tensors_print_as_on_the_device() -> None:
    """The representation names cuda:0; a number formats as its stand-in."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.ones(2, 2, device="cuda")
        assert "device='cuda:0'" in repr(x)
        assert "device='cuda:0'" in f"{x}"
        assert f"{x.float().sum():.2f}" == "1.00"


def test_addresses_tell_tensors_apart() -> None:
    """Two tensors, two addresses; a view begins inside its base."""
    with memlens.simulate(gpu="A100 40GB"):
        x, y = torch.ones(8, device="cuda"), torch.ones(8, device="cuda")
        assert x.data_ptr() != y.data_ptr()
        assert x[2:].data_ptr() == x.data_ptr() + 8


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")  # torch.func's own
def test_functional_transforms() -> None:
    """grad, vmap, jacobians and functional_call see the device."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.ones(4, device="cuda")
        assert torch.func.grad(lambda v: (v**2).sum())(x).is_cuda
        assert torch.func.jacrev(lambda v: v**2)(x).shape == (4, 4)
        assert torch.func.jvp(lambda v: v**2, (x,), (x,))[1].is_cuda
        assert torch.vmap(lambda m: m @ m)(torch.ones(4, 3, 3, device="cuda")).shape == (4, 3, 3)
        assert torch.autograd.functional.jacobian(lambda v: v**2, x).shape == (4, 4)
        layer = nn.Linear(4, 4).cuda()
        assert torch.func.functional_call(layer, dict(layer.named_parameters()), (x,)).is_cuda


def test_the_device_context() -> None:
    """`with torch.cuda.device(0)` is a context and a type, as libraries use it."""
    with memlens.simulate(gpu="A100 40GB"), torch.cuda.device(0) as inside:
        assert inside is None
        assert not isinstance("cuda", torch.cuda.device)


@pytest.mark.parametrize(
    ("dtype", "mib"),
    [(torch.float8_e4m3fn, 1), (torch.complex64, 8), (torch.int16, 2), (torch.bool, 1), (torch.float64, 8)],
)
def test_bytes_per_dtype(dtype: torch.dtype, mib: int) -> None:
    """A million numbers, in every width."""
    with memlens.simulate(gpu="H100"):
        x = torch.empty(1024, 1024, device="cuda").to(dtype)
        assert x.dtype is dtype
        assert torch.cuda.memory_allocated() == mib * MIB


def test_channels_last_stays_channels_last() -> None:
    """Output and gradients have the layout of input and weight."""
    with memlens.simulate(gpu="H100"):
        layer = nn.Conv2d(3, 8, 3).cuda().to(memory_format=torch.channels_last)
        out = layer(torch.empty(2, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last))
        assert out.is_contiguous(memory_format=torch.channels_last)
        out.sum().backward()
        assert layer.weight.grad.is_contiguous(memory_format=torch.channels_last)


def test_generators_of_the_device() -> None:
    """`torch.Generator("cuda")` exists, says cuda, and is accepted by factories."""
    with memlens.simulate(gpu="A100 40GB"):
        generator = torch.Generator("cuda").manual_seed(3)
        assert generator.device.type == "cuda"
        assert isinstance(generator, torch.Generator)
        assert isinstance(torch.default_generator, torch.Generator)
        assert torch.randn(4, device="cuda", generator=generator).is_cuda
        assert torch.randint(0, 5, (4,), device="cuda", generator=generator).is_cuda


def test_markers_do_nothing_and_graphs_are_refused() -> None:
    """NVTX ranges cost nothing; capturing a CUDA graph is refused in one sentence."""
    with memlens.simulate(gpu="A100 40GB"):
        torch.cuda.nvtx.range_push("step")
        torch.cuda.nvtx.range_pop()
        assert isinstance(torch.cuda.CUDAGraph, type)  # libraries write `CUDAGraph | None` in annotations
        with pytest.raises(UnsupportedOperator, match="CUDA graphs"):
            torch.cuda.CUDAGraph()


def test_nested_tensors_are_refused_by_name() -> None:
    """Strided nested tensors have no meta kernels."""
    with memlens.simulate(gpu="A100 40GB"), pytest.raises(UnsupportedOperator, match="nested"):
        torch.nested.nested_tensor([torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda")])


@pytest.mark.parametrize(("views", "mib"), [(False, 4), (True, 0)])
def test_one_rank_of_data_parallel_training(views: bool, mib: int) -> None:
    """Buckets of all gradients' size from the start; gradients come on top, or are views of the buckets."""
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed package")
    with memlens.simulate(gpu="A100 40GB") as sim:
        layer = nn.Linear(1024, 1024, bias=False).cuda()
        start = torch.cuda.memory_allocated()
        model = nn.parallel.DistributedDataParallel(layer, device_ids=[0], gradient_as_bucket_view=views)
        assert torch.cuda.memory_allocated() - start == 4 * MIB
        workspaces = 2 * 8519680  # of cuBLAS, in the forward's thread and in backward's
        with model.no_sync():
            model(torch.empty(2, 1024, device="cuda")).sum().backward()
        assert torch.cuda.memory_allocated() - start == (4 + mib) * MIB + workspaces
        layer.zero_grad()
        assert torch.cuda.memory_allocated() - start == 4 * MIB + workspaces
        model(torch.empty(2, 1024, device="cuda")).sum().backward()
        assert list(model.state_dict()) == ["module.weight"]
        assert layer.weight.grad.is_cuda
    assert "one process of a distributed run" in sim.trace.assumptions[0].what


def test_a_part_of_the_compiler_may_be_imported() -> None:
    """Libraries that import torch._dynamo's parts, as transformers does, get the real ones."""
    import subprocess
    import sys

    code = (
        "import torch, memlens\n"
        "with memlens.simulate(gpu='T4'):\n"
        "    import torch._dynamo._trace_wrapped_higher_order_op as part\n"
        "print(part.__name__, torch._dynamo.__file__ is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "torch._dynamo._trace_wrapped_higher_order_op True"
