"""The inside of a script's prediction: `main`, in a process of its own.

Becomes the script, on a simulated GPU and in a sandbox, and leaves in the scratch folder what was learned:
`trace.memlens` and `result.json`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch.fx.experimental.symbolic_shapes  # noqa: F401  # what meta kernels load at their first call

from memlens.errors import MemlensError
from memlens.measurement.notebooks.cells import ENDING
from memlens.model import Mark, Trace
from memlens.records import native
from memlens.scenarios.sandbox.limits import OFFLINE, sandbox
from memlens.scenarios.sandbox.terminal import answering
from memlens.scenarios.script import entry, preload
from memlens.scenarios.script.failure import Complaint, complain
from memlens.scenarios.script.job import Job, Result, read_job, write_result
from memlens.scenarios.script.notebook import Notebook
from memlens.scenarios.script.parent import last_words
from memlens.scenarios.script.ranks import asked_of_torchrun
from memlens.scenarios.script.stop_condition import Steps, Stop, counting, precision
from memlens.scenarios.shims import registry
from memlens.scenarios.user_frames import whereabouts
from memlens.simulation import simulate
from memlens.simulation.core.phases import settle
from memlens.simulation.core.session import Simulation

_PDEATHSIG, _SUBREAPER = 1, 36  # prctl


class Inside:
    """One run of a script: what it needs to be able to leave at any moment."""

    def __init__(self, scratch: str, job: Job) -> None:
        self.scratch, self.job = scratch, job
        self.pid = os.getpid()
        self.name = job.name
        self.started = time.perf_counter()
        self.lock = threading.Lock()
        self.left = self.late = False
        self.where = ""  # where the script was when its time was up
        self.main = threading.get_ident()
        self.in_a_thread: BaseException | None = None  # the first error that ended a thread
        self.unset: set[str] = set()  # what it asked of torchrun's variables
        self.failed: dict[str, BaseException] = {}  # libraries that could not be imported
        self.questions: list[str] = []  # that it asked whoever sits before it
        self.steps: Steps
        self.sim: Simulation
        self.shims: registry.Shims
        self.observer: Any = None
        self.notebook: Notebook | None = None
        self.exit = os._exit

    def say(self, text: str) -> None:
        with open(os.path.join(self.scratch, "progress"), "w", encoding="utf-8") as file:
            file.write(text)

    def run(self) -> None:
        """The script, until it ends, is stopped, or fails."""
        job = self.job
        script = Path(job.path).resolve()
        os.environ.update(OFFLINE | dict(job.environment))  # some libraries look when they are imported
        self.say(f"importing what {self.name} imports")
        self.failed = preload.import_libraries(script, entry.own_folder(job, script))
        if script.suffix == ENDING:
            importlib.import_module("IPython.core.interactiveshell")
        make_observer = load_named(job.observer)
        shims = self.shims = registry.Shims(synthetic=job.synthetic)
        with sandbox(self.scratch, job.host_bytes, job.writes), shims:
            with simulate(job.gpu, alloc_conf=job.alloc_conf) as sim:
                self.sim = shims.sim = sim
                sim.values.unknown_is = job.unknown_is
                self.steps = Steps(sim, job.steps, self.say)
                os._exit = self.exited  # type: ignore[assignment]
                self.watch()
                self.started = time.perf_counter()
                self.say(f"running {self.name}")
                self.observer = make_observer and make_observer(sim, dict(job.changes))
                observing = self.observer if self.observer else contextlib.nullcontext()
                with (
                    asked_of_torchrun(self.unset),
                    answering(shims.say, self.questions),
                    counting(self.steps, by_cell=script.suffix == ENDING),
                    observing,
                ):
                    complaint = self.become() or self.uncounted()
            self.leave(complaint)

    def become(self) -> Complaint | None:
        """Be the script; None if it ended well or was stopped."""
        try:
            if self.job.path.endswith(ENDING):
                self.notebook = Notebook(self.job, self.say, lambda: self.late)
                self.notebook.run(self.steps)
            else:
                module, code = entry.read_main(self.job)
                sys.modules["__main__"] = module
                exec(code, module.__dict__)
        except Stop:
            return None
        except BaseException as error:
            if self.steps.stopped:
                return None
            if isinstance(error, SystemExit) and error.code in (None, 0):
                return None
            if os.getpid() != self.pid:
                self.exit(1)
            last = self.last_output()
            traceback.print_exception(error)
            job = self.job
            complaint = complain(error, self.name, job.host_bytes, last, job.synthetic, self.failed)
            if self.unset:
                return complaint._replace(missing_variable=min(self.unset))
            if isinstance(error, (ValueError, LookupError)) and self.questions:
                hint = f"it asked {self.questions[-1]!r}, which nobody answers here: give it as an argument"
                return complaint._replace(hint=hint)
            return complaint
        if os.getpid() != self.pid:
            self.exit(0)
        return None

    def uncounted(self) -> Complaint | None:
        """What the script's modules and optimizers hold and no figure counts."""
        try:
            self.sim.phases.check()
        except MemlensError as error:
            return Complaint(error.message, error.hint)
        return None

    def last_output(self) -> str:
        sys.stderr.flush()
        return last_words(os.path.join(self.scratch, "output"))

    def watch(self) -> None:
        """Ask the script to stop when its time is up; leave without its consent when it does not."""

        def on_alarm(number: int, frame: Any) -> None:
            self.where = whereabouts(frame) if self.late else ""
            self.steps.stop()

        signal.signal(signal.SIGALRM, on_alarm)
        threading.excepthook = self.thread_failed

        def wait() -> None:
            time.sleep(max(self.job.max_seconds - (time.perf_counter() - self.started), 0))
            self.late = True
            signal.pthread_kill(self.main, signal.SIGALRM)
            time.sleep(self.job.grace_seconds / 4)
            self.leave(None)

        threading.Thread(target=wait, daemon=True, name="memlens").start()

    def thread_failed(self, failed: Any) -> None:
        """A thread ended with an error: the script may wait for it forever."""
        self.in_a_thread = self.in_a_thread or failed.exc_value
        threading.__excepthook__(failed)

    def exited(self, status: int) -> None:
        """What `os._exit` does here: end the child and keep the events so far."""
        if os.getpid() != self.pid or self.left:
            self.exit(status)
        complaint = None
        if status:
            complaint = Complaint(f"{self.name} called os._exit({status})")
        self.leave(complaint)

    def leave(self, complaint: Complaint | None) -> None:
        """Write what was learned, once, and go, whatever threads or handlers the script has left."""
        if os.getpid() != self.pid:
            self.exit(0)
        with self.lock:
            if not self.left:
                self.left = True
                self.write(complaint)
        self.exit(0)

    def too_late(self, complaint: Complaint | None) -> Complaint:
        """Nothing is known of a training script that took no step."""
        if complaint is None and self.in_a_thread is not None:
            complaint = complain(self.in_a_thread, self.name, self.job.host_bytes, "")
        message = f"{self.name} took no step of its optimizer in {self.job.max_seconds:g} seconds{self.where}"
        return complaint or Complaint(message, "--max-seconds gives it more time")

    def write(self, complaint: Complaint | None) -> None:
        sim, steps = self.sim, self.steps
        end = steps.end if steps.stopped else len(sim.events)
        settle(sim.trace, sim.phases.forward_ends)
        trace = sim.trace
        if self.late and steps.counts and not steps.taken:
            complaint = self.too_late(complaint)
        trace.events = trace.events[:end]
        trace.marks = [mark for mark in trace.marks if mark.index <= end]
        if (steps.stopped or self.notebook) and not self.late:
            name_evaluation(trace)
        elapsed = time.perf_counter() - self.started
        result = Result(
            complaint, self.late, steps.stopped, steps.taken, steps.names, steps.precision or precision(sim),
            sim.operators, list(sim.values.conditions), elapsed, sim.alloc_conf,
            self.observer.seen() if self.observer else {}, self.notebook.result() if self.notebook else None,
            self.shims.made_up,
        )  # fmt: skip
        native.save(trace, os.path.join(self.scratch, "trace.memlens"))
        write_result(self.scratch, result)


def load_named(observer: str | None) -> Any:
    """What makes the observer, `module:function`, loaded before the simulation begins."""
    if observer is None:
        return None
    module, _, name = observer.partition(":")
    return getattr(importlib.import_module(module), name)


def name_evaluation(trace: Trace) -> None:
    """What runs after the last optimizer step is no step's forward."""
    last = max((n for n, mark in enumerate(trace.marks) if mark.name == "optimizer"), default=-1)
    if last < 0:
        return
    trace.marks[last + 1 :] = [
        Mark("evaluation", mark.index, 0) if mark.name == "forward" else mark
        for mark in trace.marks[last + 1 :]
    ]


def main() -> None:
    scratch = sys.argv[1]
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None)
        libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    Inside(scratch, read_job(scratch)).run()
