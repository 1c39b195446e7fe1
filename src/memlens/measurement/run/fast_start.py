"""The least that a program under `memlens run` must wait for: its start, and signals that are handed to it.

A plain `memlens run [-q -o FILE ...] script.py args` starts its program before click, the command line and
the recorder are loaded (50 ms), and these find it in `started`. Whatever is not plain takes the usual way,
which also tells what is wrong. So this file imports as little as it can.
"""

from __future__ import annotations

import _thread  # `threading` is not needed, and takes 2 ms to import
import os
import signal
import sys
import time

from memlens.measurement.child.channel import VARIABLE

TYPE_CHECKING = False  # `typing` takes 8 ms to import
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Protocol

    class Running(Protocol):
        """A program that was started: a `subprocess.Popen`, or a `Child`."""

        pid: int
        returncode: int | None

        def send_signal(self, sig: int, /) -> None: ...


_ROOM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENTRY = os.path.join(_ROOM, "child", "entry.py")
SOURCE = os.path.dirname(os.path.dirname(_ROOM))  # the folder that holds the package `memlens`
INTERVAL_SECONDS = 0.1
LOOK_SECONDS = 0.005
# options that change nothing about how the program is started; the second take a value
PLAIN = frozenset("-q --quiet --force --json -C --include-children -M --multiprocess -E --exit-code".split())
PLAIN_WITH_FILE = frozenset(("-o", "--output"))


class Signals:
    """Hands the signals that we get to a program while it runs.

    Ctrl-C reaches every process of the terminal's foreground group by itself: it is passed on only if we are
    not in one. The program decides what it means; we wait for it either way. What our caller ignores
    (`nohup`) the program ignores, too.
    """

    def __init__(self) -> None:
        self.process: Running | None = None
        self.early: list[int] = []
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        heard = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._forward) for number in heard}

    def hand_to(self, process: Running) -> None:
        self.process = process
        for number in self.early:
            process.send_signal(number)

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number in _FROM_TERMINAL and in_foreground():
            return
        if self.process is None:
            self.early.append(number)
        elif self.process.returncode is None:
            self.process.send_signal(number)


def _numbers(*names: str) -> set[int]:
    return {getattr(signal, name) for name in names if hasattr(signal, name)}


# a console of Windows hands Ctrl-C and Ctrl-Break to all of its processes
_FROM_TERMINAL = _numbers("SIGINT", "SIGQUIT", "SIGBREAK")
_FORWARDED = _FROM_TERMINAL | _numbers("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def in_foreground() -> bool:
    """Whether a terminal's Ctrl-C reaches us and the program alike."""
    for descriptor in (0, 1, 2):
        try:
            return os.tcgetpgrp(descriptor) == os.getpgrp()
        except (OSError, AttributeError):
            continue
    return sys.platform == "win32"


class Child:
    """A program started without `subprocess`, to be waited for through its pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def send_signal(self, sig: int) -> None:
        os.kill(self.pid, sig)


class Started:
    """A program that runs already, the folder of its channel, and who hands it its signals.

    Until `stop_looking`, a thread reads its resident memory: `seen` is a list of (Unix microseconds, bytes).
    """

    def __init__(self, process: Child, folder: str, begun_us: int, signals: Signals) -> None:
        self.process, self.folder, self.begun_us, self.signals = process, folder, begun_us, signals
        self.seen: list[tuple[int, int]] = []
        self._over = False
        _thread.start_new_thread(self._look, ())

    def stop_looking(self) -> list[tuple[int, int]]:
        self._over = True
        return self.seen

    def _look(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        try:
            descriptor = os.open(f"/proc/{self.process.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            while not self._over and (text := os.pread(descriptor, 64, 0)):
                if resident := int(text.split()[1]):  # 0 is a zombie
                    self.seen.append((time.time_ns() // 1000, resident * page))
                time.sleep(LOOK_SECONDS)
        except OSError:
            pass  # it is gone
        finally:
            os.close(descriptor)


started: Started | None = None


def start(words: list[str]) -> None:
    """Start the program of `memlens run WORDS`, if that is plain."""
    global started
    program = plain_program(words)
    if program is None or not can_wait():
        return
    try:
        folder = new_folder()
    except OSError:
        return
    options = option_lines({"interval": INTERVAL_SECONDS, "oom": 1, "source": SOURCE})
    interpreter, *target = program
    argv = [interpreter, ENTRY, options, *target]
    environment = {**os.environ, VARIABLE: os.path.join(folder, "channel")}
    signals = Signals()
    signals.install()
    begun = time.time_ns() // 1000
    reset = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ")]  # Python ignores them, programs do not
    try:
        process = Child(os.posix_spawnp(interpreter, argv, environment, setsigdef=reset))
    except OSError:  # the usual way finds out why
        signals.restore()
        remove_folder(folder)
        return
    signals.hand_to(process)
    started = Started(process, folder, begun, signals)


def wait_alone(program: Started) -> int:
    """Wait for a program that could not be recorded; its exit code as a shell gives it."""
    program.stop_looking()
    _, status = os.waitpid(program.process.pid, 0)
    remove_folder(program.folder)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def plain_program(words: list[str]) -> list[str] | None:
    """The interpreter, the script and its arguments; None where anything is not plain, or will be refused.

    >>> plain_program(["-q", "no such.py"])
    """
    place, output, force = 0, "", False
    while place < len(words) and words[place].startswith("-"):
        word = words[place]
        if word in PLAIN_WITH_FILE and place + 1 < len(words):
            place, output = place + 1, words[place + 1]
        elif word not in PLAIN:
            return None
        force = force or word == "--force"
        place += 1
    program = words[place:]
    if not program or os.path.basename(program[0]).rstrip("0123456789.") not in ("python", "pypy"):
        program = [sys.executable, *program]
    if len(program) < 2 or not program[1].endswith((".py", ".pyw")) or not os.path.isfile(program[1]):
        return None
    if output and os.path.splitext(output)[1] not in (".memlens", ".dat"):
        return None
    if not os.access(os.path.dirname(output) or ".", os.W_OK) or os.path.isdir(output):
        return None
    return program if force or not output or not os.path.exists(output) else None


def can_wait() -> bool:
    """Whether this system has pidfds, and lets us use them."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def option_lines(options: dict[str, object]) -> str:
    """Options as bootstrap.py takes them."""
    return "\n".join(f"{key}={value}" for key, value in options.items())


def new_folder() -> str:
    """A folder of our own for the channel, which is in it."""
    place = next((path for name in ("TMPDIR", "TEMP", "TMP") if (path := os.environ.get(name))), "/tmp")
    folder = os.path.join(os.path.abspath(place), f"memlens-{os.urandom(8).hex()}")
    os.mkdir(folder, 0o700)
    open(os.path.join(folder, "channel"), "wb").close()
    return folder


def remove_folder(folder: str) -> None:
    """Remove it with what is in it."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
