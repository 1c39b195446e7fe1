"""The objects of `torch.cuda` that code makes and keeps: streams, events, device contexts, generators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlens.simulation.torch_api.device import GPU, as_device

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_REAL_GENERATOR = torch.Generator


class Stream:
    """A stream of the simulated device: the caching allocator keeps blocks of different streams apart."""

    _next_id = 1

    def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None, **_: Any) -> None:
        if stream_id is None:
            stream_id = Stream._next_id
            Stream._next_id += 1
        self.stream_id = self.cuda_stream = stream_id
        self.device = GPU
        self.device_index = 0
        self.priority = priority

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.stream_id:#x}>"

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        """Nothing runs, so there is nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing runs, so there is nothing to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing runs, so there is nothing to wait for."""

    def record_event(self, event: Any = None) -> Event:
        return event or Event()


class Event:
    """An event of the simulated device: always reached, no time passes."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = GPU

    def record(self, stream: Any = None) -> None:
        """No time passes."""

    def wait(self, stream: Any = None) -> None:
        """Already reached."""

    def synchronize(self) -> None:
        """Already reached."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 0.0


class DeviceContext:
    """`with torch.cuda.device(0):` there is one device, and it is current."""

    def __init__(self, device: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        """Nothing to switch to."""

    def __exit__(self, *exc: object) -> None:
        """Nothing to switch back from."""


class _AnyGenerator(type(torch.Generator)):  # type: ignore[misc]
    """Makes torch's own generators instances too, while `torch.Generator` is the class below."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _REAL_GENERATOR)


class Generator(torch.Generator, metaclass=_AnyGenerator):
    """A generator of the simulated device: a host's, which says otherwise; nothing is drawn from it there."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Any = "cpu") -> None:
        self._device = as_device(device)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device


class UseStream:
    """`with torch.cuda.stream(s):` allocations inside belong to that stream."""

    def __init__(self, sim: Simulation, stream: Stream | None) -> None:
        self.sim, self.stream, self.before = sim, stream, 0

    def __enter__(self) -> None:
        self.before = self.sim.stream
        if self.stream is not None:
            self.sim.stream = self.stream.stream_id

    def __exit__(self, *exc: object) -> None:
        self.sim.stream = self.before
