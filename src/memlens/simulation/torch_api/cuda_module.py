"""`torch.cuda` answering from the simulation: which functions are replaced, and by what.

`replacements` is a table from dotted names to their stand-ins, for `memlens.patching`.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from memlens.allocator import parse_config
from memlens.model import Assumption
from memlens.simulation.core.ledger import CUDA
from memlens.simulation.torch_api import (
    attention_calls,
    autograd,
    device_type,
    dlpack,
    legacy_types,
    multi_gpu,
    save_and_load,
    storages,
    torchscript,
)
from memlens.simulation.torch_api.cuda_objects import DeviceContext, Event, Generator, Stream, UseStream
from memlens.simulation.torch_api.device import as_device, check_index
from memlens.simulation.torch_api.memory_snapshot import driver_functions

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation
    from memlens.simulation.torch_api.device import DeviceMode

_RNN_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}  # cudnnRNNMode_t
_CUDA_VERSION = "13.0"  # of the torch 2.14.1 CUDA wheel
_CUDNN_VERSION = 92400  # the copy in the torch 2.14.1 CUDA wheel


def properties(sim: Simulation) -> SimpleNamespace:
    """What `torch.cuda.get_device_properties` gives, for the simulated card."""
    major, minor = sim.gpu.compute_capability
    return SimpleNamespace(
        name=sim.gpu.name,
        major=major,
        minor=minor,
        total_memory=sim.gpu.memory_bytes,
        multi_processor_count=sim.gpu.multiprocessors or 0,
        warp_size=32,
        L2_cache_size=sim.gpu.generation.l2_bytes,  # timm's optimizers ask for it
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_multi_processor=sim.gpu.generation.threads_per_sm,
        regs_per_multiprocessor=65536,
        gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def profiler_functions() -> dict[str, Any]:
    """Ranges for nsys and its kin: nothing runs that could be profiled."""
    success = SimpleNamespace(cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0)
    return {
        "torch.cuda.cudart": lambda: success,
        "torch.cuda.check_error": lambda code: None,
        "torch.cuda.profiler.start": lambda: None,
        "torch.cuda.profiler.stop": lambda: None,
    }


def memory_functions(sim: Simulation) -> dict[str, Any]:
    """The functions of `torch.cuda.memory`, which is also where `torch.cuda` has them from."""
    pool = sim.allocator

    def stats(device: Any = None) -> dict[str, int]:
        return dict(pool.stats())

    def info(device: Any = None) -> tuple[int, int]:
        total = sim.gpu.memory_bytes
        return max(total - sim.gpu.context_bytes[1] - pool.reserved_bytes, 0), total

    def nested(device: Any = None) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for dotted, value in pool.stats().items():
            *parts, last = dotted.split(".")
            inner = tree
            for part in parts:
                inner = inner.setdefault(part, {})
            inner[last] = value
        return tree

    def fraction(fraction: float, device: Any = None) -> None:
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        if pool.capacity_bytes is None:  # a card that never fills; what is needed is the question
            why = "the simulation goes on where a full card would stop"
            sim.assume(Assumption("set_per_process_memory_fraction is not enforced", why))
        else:
            pool.allowed_bytes = int(fraction * sim.gpu.memory_bytes)
        sim.notes["memory_fraction"] = fraction

    def settings(env: str) -> None:
        sim.ledger.before_first = None  # from now on the program decides, not the environment
        sim.configure(parse_config(env), env)

    return {
        "memory_allocated": lambda device=None: pool.allocated_bytes,
        "max_memory_allocated": lambda device=None: pool.max_allocated_bytes,
        "memory_reserved": lambda device=None: pool.reserved_bytes,
        "max_memory_reserved": lambda device=None: pool.max_reserved_bytes,
        "memory_cached": lambda device=None: pool.reserved_bytes,
        "max_memory_cached": lambda device=None: pool.max_reserved_bytes,
        "reset_peak_memory_stats": lambda device=None: pool.reset_peaks(),
        "reset_max_memory_allocated": lambda device=None: pool.reset_peaks(),
        "reset_max_memory_cached": lambda device=None: pool.reset_peaks(),
        "reset_accumulated_memory_stats": lambda device=None: pool.reset_accumulated(),
        "memory_stats": stats,
        "memory_stats_as_nested_dict": nested,
        "mem_get_info": info,
        "empty_cache": pool.empty_cache,
        "get_allocator_backend": lambda: "native",
        "set_per_process_memory_fraction": fraction,
        "get_per_process_memory_fraction": lambda device=None: sim.notes.get("memory_fraction", 1.0),
        "_set_allocator_settings": settings,
    }


def device_functions(sim: Simulation) -> dict[str, Any]:
    """The functions of `torch.cuda` about devices, streams and state."""
    capability = sim.gpu.compute_capability

    def device_properties(device: Any = None) -> SimpleNamespace:
        check_index(as_device("cuda" if device is None else device))
        return properties(sim)

    def bf16(including_emulation: bool = True) -> bool:
        return sim.gpu.generation.bf16 or including_emulation

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: check_index(as_device(device)),
        "get_device_name": lambda device=None: sim.gpu.name,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": device_properties,
        "is_bf16_supported": bf16,
        "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "can_device_access_peer": lambda device, peer_device: False,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_lazy_call": lambda callable, **kwargs: None,
        "synchronize": lambda device=None: sim.recorded.wait(),
        "ipc_collect": lambda: None,
        "device": DeviceContext,
        "device_of": DeviceContext,
        "_DeviceGuard": lambda index: contextlib.nullcontext(),
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "Stream": Stream,
        "Event": Event,
        "current_stream": lambda device=None: Stream(stream_id=sim.stream),
        "default_stream": lambda device=None: Stream(stream_id=0),
        "stream": lambda stream: UseStream(sim, stream),
        "set_stream": lambda stream: setattr(sim, "stream", stream.stream_id),
        "is_current_stream_capturing": lambda: False,
        "utilization": lambda device=None: 0,
        "current_blas_handle": lambda: 0,
    }


def accelerator_functions(sim: Simulation) -> dict[str, Any]:
    """`torch.accelerator`, the same without the name CUDA; optimizers ask there since torch 2.14."""
    cuda, memory = device_functions(sim), memory_functions(sim)
    shared = ("is_available", "device_count", "synchronize", "current_stream", "set_stream")
    table = {name: cuda[name] for name in shared}
    table |= {name: value for name, value in memory.items() if hasattr(torch.accelerator, name)}
    table |= {
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": cuda["current_device"],
        "current_device_idx": cuda["current_device"],
        "set_device_index": cuda["set_device"],
        "set_device_idx": cuda["set_device"],
        "get_memory_info": memory["mem_get_info"],
    }
    return table


def random_functions() -> dict[str, Any]:
    """The device's random state: there is none; code that saves and restores it gets an empty one."""
    return {
        "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)],
        "set_rng_state": lambda new_state, device="cuda": None,
        "set_rng_state_all": lambda new_states: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": lambda: 0,
    }


def overrides_something(arguments: Any) -> bool:
    """`torch.overrides.has_torch_function`, by which modules shun their fast paths, without our own mode."""
    plain = (torch.Tensor, torch.nn.Parameter, type(None))
    return any(type(value) not in plain and hasattr(value, "__torch_function__") for value in arguments)


def replacements(sim: Simulation, mode: DeviceMode) -> dict[str, Any]:
    """Every name that is replaced, with its stand-in."""
    table: dict[str, Any] = {}
    for name, value in (memory_functions(sim) | storages.raw_functions(sim)).items():
        table[f"torch.cuda.memory.{name}"] = table[f"torch.cuda.{name}"] = value
    for name, value in random_functions().items():
        table[f"torch.cuda.random.{name}"] = table[f"torch.cuda.{name}"] = value
    for name, value in device_functions(sim).items():
        table[f"torch.cuda.{name}"] = value

    for name, value in accelerator_functions(sim).items():
        table[f"torch.accelerator.{name}"] = value

    table |= driver_functions(sim) | profiler_functions()

    has_compatible_type = torch._has_compatible_shallow_copy_type

    def compatible(input: Any, from_: Any) -> bool:
        """CPU and CUDA tensors may take each other's place, so a small real one and a simulated one must."""
        with torch._C.DisableTorchFunction():
            return (not input.is_meta and sim.is_cuda(from_)) or has_compatible_type(input, from_)

    # the compiler, should the code load it, compares the signature with its own copy's
    compatible.__annotations__ = {"input": torch.Tensor, "from_": torch.Tensor, "return": bool}

    def set_default_device(device: Any) -> None:
        mode.default = None if device is None else as_device(device)

    def step_always(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """GradScaler asks the device whether gradients overflowed: they never do here."""
        return optimizer.step(*args, **kwargs)

    def compile(model: Any = None, **options: Any) -> Any:
        """The compiler would fuse operators for a card that is not there; the model stays as it is."""
        why = "compiled code fuses operators and mostly keeps less; how much is not simulated"
        sim.assume(Assumption("torch.compile is taken as eager code", why))
        return (lambda function: function) if model is None else model

    group = torch._C._group_tensors_by_device_and_dtype

    def group_by_device(lists: Any, *args: Any) -> Any:
        """Optimizers make scalars on the device of a group, and C++ would tell them that it is meta."""
        groups: Any = group(lists, *args)
        return {(mode.device_of(parts[0][0][0]), dtype): parts for (_, dtype), parts in groups.items()}

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """A lazy parameter gets its shape; torch's own asks the data that is not there yet for its device."""
        self.data = torch.empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become

    make_tensor = torch.tensor

    def tensor(*args: Any, **kwargs: Any) -> torch.Tensor:
        """Also where torch's own Python code makes one for a tensor of the card: C++ shows it to no mode."""
        made = make_tensor(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            if sim.target is CUDA and made.is_meta and sim.ledger.of(made) is None:
                sim.adopt(made, "tensor")
        return made

    table |= autograd.replacements(mode) | save_and_load.replacements(mode) | multi_gpu.replacements(sim)
    table |= attention_calls.replacements(sim) | dlpack.replacements()
    table |= (
        device_type.replacements()
        | storages.replacements(sim)
        | legacy_types.replacements(mode)
        | torchscript.replacements(sim)
        | mode.moved.replacements()
    )
    table |= {
        "torch.nn.parameter.UninitializedTensorMixin.materialize": materialize,
        "torch._C._group_tensors_by_device_and_dtype": group_by_device,
        "torch.tensor": tensor,
        "torch.compile": compile,
        "torch.Generator": Generator,
        "torch.Stream": Stream,
        "torch.Event": Event,
        "torch.version.cuda": torch.version.cuda or _CUDA_VERSION,
        "torch.set_default_device": set_default_device,
        "torch.get_default_device": lambda: mode.default_device(),
        # torch's own wants a stream that C++ made
        "torch.Tensor.record_stream": lambda tensor, stream: sim.recorded.record(tensor, stream),
        # a DataLoader's thread has no modes of its own, and what the host pins is not on the device
        "torch.utils.data._utils.pin_memory.pin_memory": lambda data, device=None: data,
        "torch._has_compatible_shallow_copy_type": compatible,
        "torch.amp.grad_scaler.GradScaler._maybe_opt_step": step_always,
        "torch.backends.cudnn.is_available": lambda: True,
        "torch.backends.cudnn.is_acceptable": lambda tensor: bool(tensor.is_cuda),
        "torch.backends.cudnn.version": lambda: _CUDNN_VERSION,
        "torch.overrides.has_torch_function": overrides_something,
        "torch._C._cuda_clearCublasWorkspaces": sim.clear_blas_workspaces,
        "torch._use_cudnn_rnn_flatten_weight": lambda: True,
        "torch.backends.cudnn.rnn.get_cudnn_mode": lambda mode: _RNN_MODES[mode],
        "torch.backends.cuda.is_built": lambda: True,
    }
    return table
