"""What goes through the wall between the two processes of a script's prediction: a job in, a result out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from memlens.devices import Gpu
from memlens.scenarios.script.failure import Complaint

# after `max_seconds`: a quarter of it for the script to stop by itself, the remainder to write the result
GRACE_SECONDS = 20.0


class Job(msgspec.Struct, frozen=True):
    """What to run and how far it may go. Sizes are in bytes.

    `path`, `module`, `command` and `cells` are those of a Script. `observer` names what makes one,
    `module:function`, in the script's process; `changes` is for it. `unknown_is` is the value of a condition
    that was not computed.
    """

    path: str
    arguments: list[str]
    gpu: Gpu
    steps: int
    max_seconds: float
    host_bytes: int
    alloc_conf: str | None = None
    writes: bool = False
    synthetic: bool = False
    observer: str | None = None
    unknown_is: bool = False
    environment: Mapping[str, str] = {}
    constants: Mapping[str, int] = {}
    changes: Mapping[str, Any] = {}
    module: str = ""
    command: str = ""
    cells: str = ""
    grace_seconds: float = GRACE_SECONDS

    @property
    def name(self) -> str:
        """The script's file, without its folder; its module or command, if it is one."""
        return self.command or self.module or os.path.basename(self.path)


class CellRun(msgspec.Struct, frozen=True):
    """A notebook's cell that was run: its number and its events, `start` to `end`.

    `stop` is the number of events when it was stopped, having shown enough steps; None: it ran to its end.
    `cut_steps` are the steps it took where loops over data loaders were cut short; 0: none was.
    """

    number: int
    start: int
    end: int
    stop: int | None = None
    cut_steps: int = 0


class NotebookRun(msgspec.Struct, frozen=True):
    """What is known of a notebook in addition: which cells ran, and what its variables hold at the end.

    `variables` are (name, bytes that it leads to, bytes that nothing else leads to). `left_out` are magics
    and commands; `ended` says which cell was the last one and why, where that was not the plan.
    """

    cells: list[CellRun]
    variables: list[tuple[str, int, int]] = []
    left_out: list[str] = []
    ended: str = ""


class Result(msgspec.Struct, frozen=True):
    """What the script's process learned, in addition to the trace. `error` is None if all went well.

    `late`: its time was up; `stopped`: it had shown enough steps. `alloc_conf` is what the allocator was set
    to, by the call, the environment or the script itself; `conditions` are lines that needed a value that
    was not computed; `seen` is what the observer noted; `notebook` is there if it is one; `made_up` is the
    data that was missing, with the lines that want it.
    """

    error: Complaint | None
    late: bool
    stopped: bool
    steps: int
    optimizers: list[str]
    precision: str | None
    operators: int
    conditions: list[str]
    elapsed_seconds: float
    alloc_conf: str | None = None
    seen: dict[str, Any] = {}
    notebook: NotebookRun | None = None
    made_up: list[str] = []


def write_job(scratch: str, job: Job) -> None:
    """The parent's side: before the child starts."""
    Path(scratch, "job.json").write_text(_to_json(job))


def read_job(scratch: str) -> Job:
    """The child's side."""
    return msgspec.convert(json.loads(Path(scratch, "job.json").read_text()), Job)


def write_result(scratch: str, result: Result) -> None:
    """The child's side: whole or not at all."""
    part = Path(scratch, "result.json.part")
    part.write_text(_to_json(result))
    part.rename(Path(scratch, "result.json"))


def read_result(scratch: str) -> Result | None:
    """The parent's side; None if the child left nothing. Raises where it left something else."""
    try:
        text = Path(scratch, "result.json").read_text()
    except FileNotFoundError:
        return None
    return msgspec.convert(json.loads(text), Result)


def _to_json(struct: Job | Result) -> str:
    """ASCII. msgspec's own encoder refuses file names that are not UTF-8, and writes inf as null."""
    return json.dumps(msgspec.to_builtins(struct))
