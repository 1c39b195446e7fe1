"""Ordinary code sees a CUDA device, and afterwards no trace of it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.errors import UsageError  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def test_torch_cuda_answers_for_the_simulated_card() -> None:
    """Name, capability, memory and bf16 support are the card's."""
    with memlens.simulate(gpu="T4"):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert "T4" in torch.cuda.get_device_name()
        assert torch.cuda.get_device_capability() == (7, 5)
        assert torch.cuda.get_device_properties(0).total_memory == torch.cuda.mem_get_info()[1]
        assert not torch.cuda.is_bf16_supported(including_emulation=False)
    assert not torch.cuda.is_available()


def test_memory_figures_come_from_the_simulation() -> None:
    """A 4 MiB tensor takes 4 MiB of a 20 MiB segment, and gives them back to the cache."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(1024, 1024, device="cuda")
        assert torch.cuda.memory_allocated() == 4 * MIB
        assert torch.cuda.memory_reserved() == 20 * MIB
        del x
        assert torch.cuda.memory_allocated() == 0
        assert torch.cuda.max_memory_allocated() == 4 * MIB
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 4 * MIB
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(256, 256, device="cuda"),
        lambda: torch.zeros(256, 256).cuda(),
        lambda: torch.zeros(256, 256).to("cuda:0"),
        lambda: torch.zeros(256, 256).to(torch.device("cuda"), torch.float32),
        lambda: torch.tensor([[0.0] * 256] * 256, device="cuda"),
        lambda: torch.zeros_like(torch.zeros(256, 256), device="cuda"),
        lambda: torch.zeros(1).new_zeros(256, 256, device="cuda"),
        lambda: torch.zeros(256, 256, pin_memory=True).to("cuda", non_blocking=True),
    ],
)
def test_every_way_to_make_a_tensor_on_the_device(make) -> None:
    """256 x 256 float32 are 256 KiB on the device, however they come there."""
    with memlens.simulate(gpu="A100 40GB"):
        x = make()
        assert x.is_cuda
        assert x.device == torch.device("cuda", 0)
        assert not x.is_cpu
        assert torch.cuda.memory_allocated() == 256 * 1024


def test_default_device_applies_to_factories() -> None:
    """`set_default_device` and `with torch.device` put what follows on the card, and only until the end."""
    with memlens.simulate(gpu="A100 40GB"):
        with torch.device("cuda"):
            assert torch.ones(2).is_cuda
        torch.set_default_device("cuda")
        assert torch.ones(2).is_cuda
        assert torch.get_default_device().type == "cuda"
    assert torch.ones(2).device.type == "cpu"


def test_small_host_tensors_are_real() -> None:
    """Shapes computed on the host just work."""
    with memlens.simulate(gpu="A100 40GB"):
        assert torch.linspace(0, 1, 3).tolist() == [0.0, 0.5, 1.0]
        assert torch.cuda.memory_allocated() == 0


def test_a_value_that_came_from_the_host_is_read_back() -> None:
    """Lengths sent to the device and read again are the lengths."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        lengths = torch.tensor([3, 7, 5]).cuda()
        assert lengths.tolist() == [3, 7, 5]
        assert lengths[1].item() == 7
    assert sim.trace.assumptions == []


def test_a_value_that_nobody_computed_is_a_stand_in_and_said() -> None:
    """`loss.item()` gives 1.0 and an assumption that names the line."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        loss = torch.randn(4, device="cuda").sum()
        assert loss.item() == 1.0
    assert "test_device.py" in sim.trace.assumptions[0].what


def test_a_module_moves_in_place() -> None:
    """An optimizer made before `.cuda()` still holds the model's parameters."""
    with memlens.simulate(gpu="A100 40GB"):
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.cuda()
        assert model.weight.is_cuda
        assert optimizer.param_groups[0]["params"][0] is model.weight


def test_streams_keep_blocks_apart() -> None:
    """A block freed on one stream is not reused on another: two segments."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        del x
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_reserved() == 40 * MIB


def test_running_out_raises_where_the_card_would() -> None:
    """A 17 GB tensor on a 16 GB card raises torch's own error, when asked for."""
    with (
        memlens.simulate(gpu="T4", raise_oom=True) as sim,
        pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 15\.83 GiB"),
    ):
        torch.empty(17 * 10**9, dtype=torch.uint8, device="cuda")
    assert sim.trace.events[-1].bytes == 17 * 10**9


def test_running_out_is_reported_by_default() -> None:
    """Without the option the peak is known although it does not fit."""
    with memlens.simulate(gpu="T4"):
        torch.empty(17 * 10**9, dtype=torch.uint8, device="cuda")
        assert torch.cuda.max_memory_allocated() >= 17 * 10**9


def test_a_second_gpu_is_refused_in_one_sentence() -> None:
    """The simulation has one card, and says so."""
    with memlens.simulate(gpu="T4"), pytest.raises(UsageError, match="has one GPU"):
        torch.empty(1, device="cuda:1") if False else torch.zeros(1).to("cuda:1")


def test_everything_is_put_back() -> None:
    """RNG, torch.cuda and torch's switches are as before, also after a failure."""
    torch.manual_seed(7)
    before = (torch.get_rng_state().clone(), torch.cuda.is_available, torch.backends.cudnn.benchmark)

    def disturb_and_fail() -> None:
        with memlens.simulate(gpu="T4"):
            torch.rand(5)
            torch.backends.cudnn.benchmark = True
            torch.set_grad_enabled(False)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        disturb_and_fail()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.cuda.is_available is before[1]
    assert torch.backends.cudnn.benchmark == before[2]
    assert torch.is_grad_enabled()


def test_the_compiler_is_not_imported() -> None:
    """A training step with an optimizer does not load torch._dynamo, which costs two seconds."""
    import subprocess
    import sys

    code = (
        "import sys, torch, memlens\n"
        "with memlens.simulate(gpu='T4'):\n"
        "    m = torch.nn.Linear(4, 4).cuda(); o = torch.optim.AdamW(m.parameters())\n"
        "    m(torch.zeros(2, 4).cuda()).sum().backward(); o.step(); o.zero_grad()\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_accelerator_is_the_simulated_card() -> None:
    """`torch.accelerator` answers as `torch.cuda` does; optimizers ask it since torch 2.14."""
    with memlens.simulate(gpu="A100 40GB"):
        assert torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator().type == "cuda"
        assert torch.accelerator.current_device_index() == 0
        assert not torch.accelerator.current_stream().is_capturing()


def test_statistics_in_every_shape() -> None:
    """Flat and nested counters agree; the card lists this process with its context and reserved memory."""
    with memlens.simulate("T4") as sim:
        kept = torch.empty(1 << 20, device="cuda")
        flat, nested = torch.cuda.memory_stats(), torch.cuda.memory_stats_as_nested_dict()
        assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"] == 4 << 20
        held = sim.gpu.context_bytes[1] + (20 << 20)
        assert f"{held / 2**20:.3f} MB GPU memory" in torch.cuda.list_gpu_processes()
        del kept


def test_a_share_of_the_card() -> None:
    """On a card that fills, a tenth of its 14.56 GiB is all that this process may reserve."""
    with memlens.simulate("T4", raise_oom=True) as sim:
        torch.cuda.set_per_process_memory_fraction(0.1)
        kept = torch.empty(sim.gpu.memory_bytes // 11, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError, match="GiB allowed"):
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        with pytest.raises(ValueError, match="0~1"):
            torch.cuda.set_per_process_memory_fraction(2)
        del kept
    with memlens.simulate("T4") as sim:
        torch.cuda.set_per_process_memory_fraction(0.1)
        torch.empty(1 << 34, dtype=torch.uint8, device="cuda")
    assert "set_per_process_memory_fraction" in sim.trace.assumptions[0].what


def test_a_number_is_a_card() -> None:
    """`torch.device(local_rank)`, as distributed scripts have it, is cuda:0; devices stay torch's own."""
    with memlens.simulate(gpu="T4"):
        device = torch.device(0)
        assert (device, isinstance(device, torch.device)) == (torch.device("cuda:0"), True)
        assert torch.ones(2, device=device).device == device
        with torch.device(0):
            assert torch.ones(2).is_cuda
        assert torch.device(type="cpu") == torch.device("cpu")
    assert type(torch.device("cpu")) is torch.device


def test_the_rest_of_torch_cuda_answers() -> None:
    """Raw allocations, the memory fraction, profiler ranges, generic streams and events, versions."""
    with memlens.simulate(gpu="T4"):
        address = torch.cuda.caching_allocator_alloc(1000)
        assert torch.cuda.memory_allocated() == 1024
        torch.cuda.caching_allocator_delete(address)
        assert torch.cuda.memory_allocated() == 0
        torch.cuda.reset_accumulated_memory_stats()
        assert torch.cuda.memory_stats()["allocated_bytes.all.freed"] == 0
        assert torch.cuda.memory.get_per_process_memory_fraction() == 1.0
        torch.cuda.profiler.start()
        torch.cuda.profiler.stop()
        assert torch.Stream("cuda").query()
        assert torch.Event("cuda").query()
        assert int(torch.version.cuda.split(".")[0]) >= 11
        assert len(torch.cuda.get_device_properties(0).uuid) == 36
