"""`memlens.on_oom()`: when memory runs out, keep a record and say why."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import torch

from memlens.devices.oom_observers import OBSERVERS
from memlens.measurement.oom.failure import asked_of, collect, device_of, frame_of, is_oom
from memlens.measurement.oom.history import AllocatorHistory, keep
from memlens.measurement.oom.raised import listen
from memlens.messages import Writable
from memlens.model.oom import Failure
from memlens.render import oom as render
from memlens.units import format_bytes

MOST = 3  # failures explained in full; a loop that retries with smaller batches runs into many
EVENTS = 100_000  # of history that CUDA's allocator keeps: some 100 bytes each, and their stacks


def on_oom(
    folder: str | Path | None = ".",
    *,
    history: int = EVENTS,
    stream: Writable | None = None,
    callback: Callable[[Failure], object] | None = None,
) -> OomRecorder:
    """From now on explain every `torch.OutOfMemoryError` before it is raised, caught or not.

    Also MPS's and the CPU allocator's errors: caught or not on Python 3.12 and later, before that where they
    end the program. Works on simulated cards that are full: `simulate(..., raise_oom=True)`.

    Args:
        folder: where records go (`memlens_oom_*.pickle`, torch snapshots), the temporary directory where that
            is full; None keeps none.
        history: how many of the allocator's last events to keep; 0 for none. A recording that is on already
            is left as it is.
        stream: what the explanation is written to, by default standard error.
        callback: called with each `Failure`, instead of writing.

    Returns:
        A recorder: `close()` it, or use it as a context, to stop; `failures` are those seen.
    """
    return OomRecorder(folder, history, stream, callback)


class OomRecorder:
    """Listens until `close()`."""

    def __init__(
        self,
        folder: str | Path | None,
        history: int,
        stream: Writable | None,
        callback: Callable[[Failure], object] | None,
    ) -> None:
        self.folder: Path | None = Path(folder) if folder is not None else None
        self.stream: Writable | None = stream
        self.callback: Callable[[Failure], object] | None = callback
        self.failures: list[Failure] = []
        self.count: int = 0
        self._history, self._recording = history, False
        self._busy, self._open = False, True
        self._told = 0  # the id of the last error that was explained when it was raised
        self._hook = sys.excepthook
        sys.excepthook = self._uncaught
        self._deafen = listen(RuntimeError, self._raised)
        OBSERVERS.append(self._full)
        if torch.backends.cuda.is_built():
            # a program that never uses CUDA must not start it; one that does runs this when it starts
            torch.cuda._lazy_call(self._attach)

    def close(self) -> None:
        """Stop listening; a history that was begun here ends."""
        if not self._open:
            return
        self._open = False
        OBSERVERS.remove(self._full)
        if self._deafen is not None:
            self._deafen()
        if sys.excepthook == self._uncaught:
            sys.excepthook = self._hook
        if self._recording:
            torch.cuda.memory._record_memory_history(enabled=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _attach(self) -> None:
        if not self._open:
            return
        torch._C._cuda_attach_out_of_memory_observer(self._full)  # type: ignore[attr-defined]
        if self._history and not torch._C._cuda_isHistoryEnabled():
            torch.cuda.memory._record_memory_history(
                context="alloc", stacks="python", max_entries=self._history
            )
            self._recording = True

    def _full(self, device: int, asked: int, total: int, free: int) -> None:
        """The allocator gives up: its exception comes next."""
        self._explain(torch.device("cuda", device), sys._getframe(1), asked, total, free)

    def _raised(self, error: BaseException) -> None:
        """An error of a device whose allocator has no observers; CUDA's are reported to `_full`."""
        if is_oom(error) and (device := device_of(error)).type != "cuda":
            self._told = id(error)
            self._explain(device, frame_of(error), asked_of(error))

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """The program ends by an exception, which may have been explained when it was raised."""
        with suppress(Exception):
            told = self._told == id(error) or (self.count and isinstance(error, torch.OutOfMemoryError))
            if is_oom(error) and not told:
                self._explain(device_of(error), frame_of(error), asked_of(error))
        self._hook(kind, error, trace)

    def _explain(
        self,
        device: torch.device,
        frame: FrameType | None,
        asked: int | None = None,
        total: int | None = None,
        free: int | None = None,
    ) -> None:
        if self._busy or not self._open:
            return
        self._busy = True  # what is done here may run out itself
        kept = AllocatorHistory()
        self.count += 1
        try:
            if self.count > MOST:
                more = format_bytes(asked) if asked is not None else "memory"
                self._say(f"memlens: out of memory on {device} once more: {more} asked for\n")
                return
            kept = keep(device, self.folder, time.strftime(f"memlens_oom_%Y%m%d%H%M%S_{self.count}.pickle"))
            failure = collect(device, frame, asked, free, total, kept)
            self.failures.append(failure)
            if self.callback is not None:
                self.callback(failure)
            else:
                self._say(render.text(failure))
        except Exception as problem:  # an explanation must never take the place of the error
            record = f"; its record is {kept.path}" if kept.path else ""
            self._say(f"memlens: the out-of-memory error could not be explained: {problem!r}{record}\n")
        finally:
            self._busy = False

    def _say(self, text: str) -> None:
        (self.stream or sys.stderr).write(text)
