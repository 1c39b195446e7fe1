"""The loop that records a program: sampled from outside, told from inside, written as it grows."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence

from memlens.errors import RecordError, UsageError
from memlens.measurement.child.channel import VARIABLE, Listener
from memlens.measurement.host.readers import reader_for
from memlens.measurement.run import programs
from memlens.measurement.run.driver_processes import Gpus
from memlens.measurement.run.recording import OpenSink, Recording
from memlens.measurement.run.sampler import Sampler, now_us
from memlens.measurement.run.settings import Settings, Started
from memlens.messages import printable
from memlens.model import Assumption, Process, Provenance, Sample, Trace
from memlens.units import format_bytes

FIRST_INTERVAL = 0.005  # seconds; grows to the interval asked for, so that short programs have samples too

OnTick = Callable[[Recording], None]


def watch(
    started: Started, settings: Settings, open_sink: OpenSink | None, on_tick: OnTick | None
) -> Recording:
    """Record a program that has just been started, to its end."""
    recording = Recording(open_sink, Trace("measured", metadata=_metadata(settings, started.program.words)))
    waiter = started.waiter
    root = Process(waiter.process.pid, programs.name(started.program), None, started.started_us)
    recording.add(root, *(Sample(time_us, root.pid, size) for time_us, size in started.seen))
    reader = reader_for(root.pid, f"{VARIABLE}={started.channel}")
    sampler = Sampler(root, reader, every_share=settings.figure in ("pss", "uss"))
    with Listener(started.channel) as listener:
        _follow(sampler, recording, settings, waiter.wait, lambda: recording.hear(listener), on_tick)
        while not waiter.wait(3600):
            pass  # the recording timed out; the program has not ended
        recording.hear(listener)
    ended = sampler.finish(now_us(), waiter.process.returncode)
    recording.metadata(largest_process_bytes=waiter.largest_process_bytes)
    if started.capture is not None:
        _add_allocations(recording, started.capture)
    _end(recording, sampler, ended)
    return recording


def _add_allocations(recording: Recording, capture: str) -> None:
    """What memray recorded, after the samples; a note where it recorded nothing that can be read."""
    from memlens.records import memray_capture  # needed by this alone

    try:
        exact = memray_capture.load(capture)
    except RecordError as error:
        recording.add(Assumption("no allocations were recorded", str(error)))
        return
    recording.add(*exact.assumptions, *(event for event in exact.events if not isinstance(event, Sample)))
    recording.metadata(
        allocations=exact.metadata["allocations"],
        peak_allocated_bytes=exact.metadata["peak_allocated_bytes"],
    )


def record_pid(
    pid: int, settings: Settings, open_sink: OpenSink | None = None, on_tick: OnTick | None = None
) -> Recording:
    """Record a running process until it ends, the timeout, or Ctrl-C; the process is left alone."""
    reader = reader_for(pid)
    if reader.read(pid) is None:
        raise UsageError(f"there is no process {pid}, or it is not ours to read")
    root = Process(pid, reader.name(pid), None, now_us())
    recording = Recording(open_sink, Trace("measured", metadata=_metadata(settings, [root.name])))
    recording.add(root)
    sampler = Sampler(root, reader, every_share=settings.figure in ("pss", "uss"))

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return reader.read(pid) is None

    try:
        gone = _follow(sampler, recording, settings, wait, lambda: None, on_tick)
    except KeyboardInterrupt:
        gone = False
    _end(recording, sampler, sampler.finish(now_us(), None) if gone else [root])
    return recording


def _metadata(settings: Settings, words: Sequence[str]) -> Provenance:
    return {
        "command": printable(shlex.join(words)),
        "figure": settings.figure,
        "interval_s": settings.interval_s,
        "include_children": settings.include_children,
    }


def _follow(
    sampler: Sampler,
    recording: Recording,
    settings: Settings,
    wait: Callable[[float], bool],
    hear: Callable[[], None],
    on_tick: OnTick | None,
) -> bool:
    """Sample until the program ends (True) or the recording times out (False)."""
    begun = time.monotonic()
    interval = min(FIRST_INTERVAL, settings.interval_s)
    gpus_asked = False
    while True:
        tick = time.monotonic()
        recording.add(*sampler.tick(now_us()))
        hear()
        if on_tick is not None:
            on_tick(recording)
        if settings.timeout_s is not None and tick - begun >= settings.timeout_s:
            return False
        if wait(max(interval - (time.monotonic() - tick), 0.001)):
            return True
        interval = min(interval * 1.5, settings.interval_s)
        if not gpus_asked and tick - begun > 0.2:  # the driver's library takes its time to load
            sampler.gpus, gpus_asked = Gpus(), True


def _end(recording: Recording, sampler: Sampler, ended: list[Process]) -> None:
    recording.add(*ended)
    if sampler.denied:
        recording.add(Assumption("PSS and USS are not known for every process", sampler.denied))
    if silent := recording.silent_children():
        what = (
            f"{silent} child process{'es' if silent > 1 else ''} may have run more lines than the tables say"
        )
        recording.add(
            Assumption(what, "they ended without a word: by os._exit, a signal, or another program")
        )
    known: Provenance = {
        "exit_code": sampler.program.exit_code,
        "gpu": _gpu_note(recording.trace, sampler.gpus),
    }
    if recording.python_peaks:
        known["python_peaks"] = recording.python_peaks
    if recording.top_lines:
        # lists, as a file gives them back
        known["top_lines"] = [list(line) for line in recording.top_lines]  # type: ignore[misc]
    if recording.lines:
        known["lines"] = recording.lines
    recording.metadata(**known)
    recording.close()


def _gpu_note(trace: Trace, gpus: Gpus | None) -> str | None:
    """Why there is no GPU figure; None if there is one."""
    if any(isinstance(event, Sample) and event.gpu_bytes is not None for event in trace.events):
        return None
    if gpus is None:
        return "the program was too short to ask the driver"
    if gpus.reason:
        return gpus.reason
    used = gpus.used_bytes()
    held = f"; {format_bytes(used)} are in use on all cards together" if used is not None else ""
    return f"the driver names no process of this program{held}"
