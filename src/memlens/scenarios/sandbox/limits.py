"""What a script may not do while it is predicted: write, download, fork without end, take all memory.

This keeps an ordinary script from leaving traces and a runaway one from taking the machine down. It is no
wall against code that means harm: run that nowhere.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from memlens.patching import remove, replaced
from memlens.scenarios.sandbox import landlock, overlay
from memlens.scenarios.sandbox.written_modules import WrittenModules

MOST_PROCESSES = 256  # started as programs of their own
MOST_FORKS = 64  # more than data loaders and their like start, fewer than hurt
MOST_FILE_BYTES = 2 << 30  # of one file in the scratch folder

# libraries that would fetch something unless told not to
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "MLFLOW_TRACKING_URI": "file:./mlruns",
    "TOKENIZERS_PARALLELISM": "false",
}


class Offline(OSError):
    """The script wanted something from the network."""


class ForkedTooOften(BlockingIOError):
    """The script started more processes than any training script needs."""


@contextlib.contextmanager
def sandbox(scratch: str, host_bytes: int | None, writes: bool) -> Iterator[overlay.Overlay]:
    """The limits for this process and all that it starts; not all of them can be taken back.

    Args:
        scratch: a folder of the caller's; what the script writes is below `scratch/files` under its path.
        host_bytes: how much memory the process may have; None for no limit. Linux only.
        writes: let the script write where it wants.
    """
    files = os.path.join(scratch, "files")
    os.makedirs(files, exist_ok=True)
    os.makedirs(os.path.join(scratch, "tmp"), exist_ok=True)
    os.environ["TMPDIR"] = os.path.join(scratch, "tmp")
    if host_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (host_bytes, host_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    layer = overlay.Overlay(files, (scratch, "/dev", "/proc"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_network())
        stack.enter_context(_few_forks())
        if not writes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
            landlock.write_only_beneath((scratch, "/dev"))
            stack.enter_context(overlay.installed(layer))
            last = WrittenModules()
            stack.callback(remove, sys.meta_path, last)
            sys.meta_path.append(last)
        yield layer


def _without_network() -> replaced:
    """Connections to this machine work; to others they fail at once, with a line that says why."""
    connect, lookup = socket.socket.connect, socket.getaddrinfo

    def local_only(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
            raise Offline(f"no network while predicting, and {address[0]} was asked for")
        return connect(self, address)

    def local_names(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host is not None and not _is_local(host):
            raise Offline(f"no network while predicting, and {_text(host)} was asked for")
        return lookup(host, *args, **kwargs)

    return replaced({"socket.socket.connect": local_only, "socket.getaddrinfo": local_names})


def _text(host: Any) -> str:
    return host.decode(errors="replace") if isinstance(host, bytes) else str(host)


def _is_local(host: Any) -> bool:
    name = _text(host)
    return name in ("", "localhost", "::1", "::", "0.0.0.0", socket.gethostname()) or name.startswith("127.")


def _few_forks() -> replaced:
    """`os.fork` works `MOST_FORKS` times here and never in a child of it; programs are counted, too."""
    fork, left = os.fork, [MOST_FORKS]

    def counted() -> int:
        if left[0] <= 0:
            raise ForkedTooOften(f"the script forked more than {MOST_FORKS} times")
        left[0] -= 1
        pid = fork()
        if pid == 0:
            left[0] = 0
        return pid

    start: Any = getattr(subprocess, "_fork_exec", None)
    started = [0]

    def counted_start(*args: Any) -> Any:
        started[0] += 1
        if started[0] > MOST_PROCESSES:
            raise ForkedTooOften(f"the script started more than {MOST_PROCESSES} programs")
        return start(*args)

    table: dict[str, Any] = {"os.fork": counted}
    if start is not None:
        table["subprocess._fork_exec"] = counted_start
    return replaced(table)
