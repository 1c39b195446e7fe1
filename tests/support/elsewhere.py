"""A Python without what only Linux has, as far as memlens may use it: what it does on macOS and Windows.

psutil still works, as it does there; it finds its figures its own way.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PRELUDE = """\
import builtins, os, select, signal, subprocess, sys, psutil
real_open, real_exists = os.open, os.path.exists
def no_proc(path, *rest, **more):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return real_open(path, *rest, **more)
os.open = no_proc
os.path.exists = lambda path: not str(path).startswith("/proc") and real_exists(path)
for name in ("pidfd_open", "wait4", "sysconf", "register_at_fork", "tcgetpgrp", "openpty"):
    delattr(os, name)
for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
    delattr(signal, name)
sys.modules.update(resource=None, termios=None, fcntl=None)
"""


def run_elsewhere(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in such a Python."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
