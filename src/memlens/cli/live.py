"""`--live`: the display, and the program's own output above it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from memlens.errors import UsageError
from memlens.render.consoles import plain_console
from memlens.render.live import LiveView

try:
    import termios
except ImportError:  # Windows has no terminals to make
    termios = None  # type: ignore[assignment]


@contextmanager
def live_view(relay: bool) -> Iterator[tuple[LiveView, dict[str, int]]]:
    """The display on standard error, and where a program started under it is to write.

    With `relay`, what would go to this terminal goes through a terminal of its own instead, so that lines of
    the program and of the display do not mix; output that is redirected elsewhere is left as it is.
    """
    console = plain_console(stderr=True)
    if not console.is_terminal:
        raise UsageError("--live needs a terminal, and standard error is none")
    with LiveView(console) as view:
        if not relay or termios is None:
            yield view, {}
            return
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (console.height, console.width))
        thread = threading.Thread(target=_relay, args=(ours, view), daemon=True)
        thread.start()
        streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        try:
            yield view, {name: theirs for name, stream in streams.items() if stream.isatty()}
        finally:
            os.close(theirs)
            thread.join(1)  # a descendant that lives on keeps its end open: it is not waited for
            if not thread.is_alive():
                os.close(ours)


def _relay(descriptor: int, view: LiveView) -> None:
    rest = b""
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            data = b""  # Linux: the last writer is gone
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines = [*lines, rest]
        if lines:
            # a progress bar writes over itself: its last state is what stays
            shown = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in lines]
            view.say("\n".join(shown))
        if not data:
            return
