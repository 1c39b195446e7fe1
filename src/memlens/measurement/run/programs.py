"""Programs under measurement: how they are started, what happens to their signals and exit codes."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlens.errors import UsageError
from memlens.measurement.host.process_names import short_name
from memlens.measurement.notebooks.cells import read_cells
from memlens.measurement.run.fast_start import ENTRY, Signals, option_lines

if TYPE_CHECKING:
    from memlens.measurement.run.fast_start import Running

_INTERPRETER = re.compile(r"(python|pypy)[\d.]*(\.exe)?\Z", re.IGNORECASE)
_NOT_A_RUN = re.compile(r"-(?![WX])\w*[hiVx]\w*")  # Python's -h, -i, -V, -x
_FLAGS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True, slots=True)
class Program:
    """A command line, taken apart. `target` is a script or `-m module` with its arguments, if Python's."""

    words: tuple[str, ...]
    interpreter: tuple[str, ...] = ()
    target: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        return bool(self.target)

    def argv(self, options: dict[str, object] | None) -> list[str]:
        """The command to start: with us inside if `options` are given."""
        if options is None or not self.is_python:
            return [*self.interpreter, *self.target] if self.is_python else list(self.words)
        return [*self.interpreter, ENTRY, option_lines(options), *self.target]


def parse(words: list[str], python: bool = False) -> Program:
    """Take apart what stands after `memlens run`: a script, `-m module`, `python ...`, or any command.

    With `python`, the first word is a script or a module whatever its name.

    >>> parse(["python3", "-u", "-m", "train", "--epochs", "3"]).target
    ('-m', 'train', '--epochs', '3')
    """
    if not words:
        raise UsageError("no program was named", hint="memlens run train.py --epochs 3")
    first = words[0]
    if first == "-m":
        if len(words) < 2:
            raise UsageError("-m needs the name of a module", hint="memlens run -m package.module")
        return Program(tuple(words), (sys.executable,), tuple(words))
    if first.startswith("-"):
        raise UsageError(f"memlens run has no option {first!r}", hint="memlens run --help lists them")
    if _INTERPRETER.match(os.path.basename(first)):
        return interpreted(words)
    if first.endswith((".py", ".pyw", ".ipynb")):
        if not os.path.isfile(first):
            kind = "notebook" if first.endswith(".ipynb") else "script"
            raise UsageError(f"there is no {kind} {first!r} in {os.getcwd()}")
        if first.endswith(".ipynb"):
            read_cells(first)  # says what is wrong with it, if anything is
        return Program(tuple(words), (sys.executable,), tuple(words))
    if python:
        target = words if os.path.isfile(first) else ["-m", *words]
        return Program(tuple(words), (sys.executable,), tuple(target))
    if shutil.which(first) is None:
        reason = "is not executable" if os.path.isfile(first) else "was not found"
        raise UsageError(f"the program {first!r} {reason}")
    return Program(tuple(words))


def interpreted(words: list[str]) -> Program:
    """`python [flags] script` or `python [flags] -m module`; anything else of Python's is a command."""
    if shutil.which(words[0]) is None:
        raise UsageError(f"the program {words[0]!r} was not found")
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-m", "-c", "-"):
        place += 2 if words[place] in _FLAGS_WITH_VALUE else 1
    rest = words[place:]
    is_script = bool(rest) and not rest[0].startswith("-") and os.path.isfile(rest[0])
    is_script = is_script and not rest[0].endswith(".ipynb")  # which Python cannot run
    is_module = len(rest) > 1 and rest[0] == "-m"
    if not (is_script or is_module) or any(_NOT_A_RUN.fullmatch(word) for word in words[1:place]):
        return Program(tuple(words))
    return Program(tuple(words), tuple(words[:place]), tuple(rest))


@contextmanager
def started(argv: list[str], environment: dict[str, str], streams: Mapping[str, int]) -> Iterator[Running]:
    """Start a program that keeps our terminal and descriptors, and hand it the signals we get meanwhile."""
    signals = Signals()
    signals.install()
    try:
        try:
            process = subprocess.Popen(
                argv,
                env=environment,
                stdout=streams.get("stdout"),
                stderr=streams.get("stderr"),
                close_fds=sys.platform == "win32",  # what our caller left open for the program stays open
            )
        except OSError as error:
            raise UsageError(f"the program {argv[0]!r} could not be started: {error.strerror}") from error
        signals.hand_to(process)
        yield process
    finally:
        signals.restore()


class Waiter:
    """Waits for a program, and learns the highest RSS of any one process, of it and those it waited for.

    That is the system's own count: it sees processes that no sample did, and does not say which one it was.
    """

    def __init__(self, process: Running) -> None:
        self.process = process
        self._descriptor = _pidfd(process.pid)
        self._own = _own_peak()
        self.largest_process_bytes: int | None = None

    def wait(self, seconds: float) -> bool:
        """Whether the program has ended, after at most `seconds`."""
        if self.process.returncode is not None:
            return True
        if self._descriptor is None:
            assert isinstance(self.process, subprocess.Popen)  # a Child is started only where pidfds are
            try:
                self.process.wait(max(seconds, 0))
            except subprocess.TimeoutExpired:
                return False
            return True
        ready, _, _ = select.select([self._descriptor], [], [], max(seconds, 0))
        if ready:
            self._reap()
        return bool(ready)

    def _reap(self) -> None:
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        os.close(self._descriptor or 0)
        # between its start and its exec the program was a copy of us: a mark not above ours tells nothing
        peak = usage.ru_maxrss * 1024
        self.largest_process_bytes = peak if peak > self._own else None


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _own_peak() -> int:
    try:
        import resource
    except ImportError:  # Windows, which has no pidfds either
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shell_code(returncode: int) -> int:
    """The exit code as a shell gives it: 128 + n for a program that signal n ended.

    >>> shell_code(3), shell_code(-9)
    (3, 137)
    """
    return returncode if returncode >= 0 else 128 - returncode


def name(program: Program) -> str:
    """The program in two words, as its children are named too."""
    return short_name([*program.interpreter, *program.target] or list(program.words))
