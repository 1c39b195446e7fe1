"""`MemTracker`: call `.track()` between lines and read which tensors came and went."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import torch

from memlens.measurement.gap import measure_gap
from memlens.measurement.tensors.watch import Taken, TensorWatch
from memlens.messages import Writable
from memlens.model.gap import Gap
from memlens.model.tensors import TensorReport, group
from memlens.render import tensors as render
from memlens.units import MIB

Device: TypeAlias = "int | str | torch.device"


class MemTracker:
    """Prints, at every `track()`, the tensors that came (+) and went (-) since the call before.

    Args:
        frame: accepted and not needed, as the caller's frame is known.
        detail: the rows, not only the totals.
        path: a file to append to, or a directory for a file named by the time; standard output if empty.
        verbose: the totals by kind too.
        device: 0 is the first CUDA device, or the CPU where there is none; or "cpu", "cuda:1", ...
        stream: anything with `write`, instead of `path`.
        callback: called with each `TensorReport`; nothing is printed unless `stream` or `path` is given too.

    Example:
        >>> import io, torch
        >>> out = io.StringIO()
        >>> tracker = MemTracker(device="cpu", stream=out)
        >>> tracker.track()
        >>> x = torch.zeros(1024, 1024)
        >>> tracker.track()
        >>> "+ | 1 * Size:(1024, 1024) | Memory: 4.00 MiB" in out.getvalue()
        True
    """

    def __init__(
        self,
        frame: FrameType | bool | None = None,
        detail: bool = True,
        path: str | os.PathLike[str] = "",
        verbose: bool = False,
        device: Device = 0,
        *,
        stream: Writable | None = None,
        callback: Callable[[TensorReport], object] | None = None,
    ) -> None:
        self.detail: bool = frame if isinstance(frame, bool) else detail
        self.verbose: bool = verbose
        self.device: Device = device
        self.stream: Writable | None = stream
        self.callback: Callable[[TensorReport], object] | None = callback
        self.path: Path | None = _file(Path(path)) if os.fspath(path) else None
        self.last: TensorReport | None = None
        self._watch: TensorWatch | None = None

    def track(self) -> None:
        """Print place, totals, and the changes since the last call; the first call shows what is there."""
        self._tell(self._look(sys._getframe(1)))

    def gap(self) -> Gap:
        """The parts between the tensors and the driver's figure, of a CUDA device now."""
        watch = self._open()
        if watch.device.type != "cuda":
            from memlens.errors import UsageError

            raise UsageError(
                f"the gap to the driver's figure was asked for of device {watch.device}",
                hint="it exists on a CUDA device, real or simulated: MemTracker(device='cuda')",
            )
        return measure_gap(watch.device.index, [tensor.bytes for tensor in watch.take().live])

    def explain(self) -> None:
        """Print the gap between the tensors and what nvidia-smi shows, a part a line."""
        self._write(render.gap_table(self.gap()))

    def get_tensor_usage(self) -> float:
        """MiB of live tensors, each storage once."""
        return self._open().take().bytes / MIB

    def get_allocate_usage(self) -> float:
        """MiB that PyTorch's allocator has handed out on the device; of tensors, on the CPU."""
        allocated = allocated_bytes(self._open().device)
        return self.get_tensor_usage() if allocated is None else allocated / MIB

    def clear_cache(self) -> None:
        """Collect garbage and give the allocator's cache back to the driver."""
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def print_all_gpu_tensor(self, file: Writable | None = None) -> None:
        """Every live tensor of the device, grouped."""
        rows = [("=", *render.cells(row)) for row in group(self._open().take().live)]
        (file or sys.stdout).write("".join(f"{line}\n" for line in render.columns(rows)))

    def close(self) -> None:
        """Stop following; the next `track()` begins anew."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _open(self) -> TensorWatch:
        device = resolve(self.device)
        if self._watch is None or self._watch.device != device:
            self.close()
            self._watch = TensorWatch(device)
        return self._watch

    def _look(self, frame: FrameType) -> TensorReport:
        watch = self._open()
        taken = watch.take()
        note = ""
        if isinstance(self.device, int) and watch.device.type == "cpu":
            note = "no CUDA device here: these are the tensors on the CPU"
        self.last = look(taken, watch.device, frame, note)
        return self.last

    def _tell(self, seen: TensorReport) -> None:
        if self.callback is not None:
            self.callback(seen)
        if self.callback is None or self.stream is not None or self.path is not None:
            self._write(render.text(seen, detail=self.detail, verbose=self.verbose))

    def _write(self, text: str) -> None:
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(text)
        if self.stream is not None or self.path is None:
            (self.stream or sys.stdout).write(text)


def look(taken: Taken, device: torch.device, frame: FrameType, note: str = "") -> TensorReport:
    """What was found, with the place and the device's own figures."""
    module = frame.f_globals.get("__name__", "")
    file = "__main__" if module == "__main__" else frame.f_code.co_filename
    totals: dict[Any, int] = {}
    for tensor in taken.live:
        totals[tensor.category] = totals.get(tensor.category, 0) + tensor.bytes
    cuda = device.type == "cuda"
    return TensorReport(
        device=str(device),
        file=file,
        line=frame.f_lineno,
        function=frame.f_code.co_name,
        came=group(taken.came),
        gone=group(taken.gone),
        tensor_bytes=sum(totals.values()),
        tensors=len(taken.live),
        by_category=dict(sorted(totals.items(), key=lambda item: -item[1])),
        allocated_bytes=allocated_bytes(device),
        peak_bytes=int(torch.cuda.max_memory_allocated(device)) if cuda else None,
        gap=measure_gap(device.index, [tensor.bytes for tensor in taken.live]) if cuda else None,
        note=note,
    )


def resolve(device: Device) -> torch.device:
    """A device with its index; a number is a CUDA device's, or the CPU where there is none."""
    if isinstance(device, int):
        return torch.device("cuda", device) if torch.cuda.is_available() else torch.device("cpu")
    given = torch.device(device)
    if given.type == "cpu" or ":" in str(given):
        return given
    # `cuda` is the current one; of another kind the first, as its tensors say
    return torch.device(given.type, torch.cuda.current_device() if given.type == "cuda" else 0)


def allocated_bytes(device: torch.device) -> int | None:
    """What the device's own allocator has handed out; None where it keeps no account."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return int(torch.mps.current_allocated_memory()) if device.type == "mps" else None


def _file(path: Path) -> Path:
    """A file as given, or in a directory one named by the time (without colons, which Windows forbids)."""
    if path.is_dir():
        return path / time.strftime("%d-%b-%y-%H.%M.%S-gpu_mem_track.txt")
    return path


@contextmanager
def track(
    device: Device = 0, *, name: str = "", stream: Writable | None = None, detail: bool = True
) -> Iterator[MemTracker]:
    """Print what a block of code left behind: the tensors that came and went from its begin to its end.

    Example:
        >>> import torch
        >>> with track("cpu") as tracker:  # doctest: +SKIP
        ...     x = torch.zeros(1024, 1024)
    """
    tracker = MemTracker(detail=detail, device=device, stream=stream)
    frame = sys._getframe(2)
    before = tracker._look(frame)
    try:
        yield tracker
    finally:
        after = tracker._look(frame)
        heading = name or "block"
        change = after.tensor_bytes - before.tensor_bytes
        tracker._write(f"{heading}: {render.change(change)}\n")
        tracker._tell(after)
        tracker.close()
