"""Progress on stderr: said when it takes long, wiped out at the end, silent in a file."""

from __future__ import annotations

import io
import time

from memlens.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(stream: io.StringIO, text: str) -> None:
    """Until `text` was drawn, at most five seconds."""
    end = time.monotonic() + 5
    while text not in stream.getvalue() and time.monotonic() < end:
        time.sleep(0.005)


def test_what_takes_long_is_said_and_wiped_out() -> None:
    """One line that is replaced, and nothing left of it at the end."""
    stream = Terminal()
    with Progress(stream, interval_seconds=0.01) as progress:
        progress("building net")
        wait_for(stream, "building net")
        progress("step 1")
        wait_for(stream, "step 1")
    assert "building net ... 0 s" in stream.getvalue()
    assert "step 1 ... 0 s" in stream.getvalue()
    assert stream.getvalue().endswith("\r\033[K")
    assert "\n" not in stream.getvalue()


def test_what_is_quick_is_not_said() -> None:
    """Nothing flickers when the work is done within a second."""
    stream = Terminal()
    with Progress(stream) as progress:
        progress("building net")
    assert stream.getvalue() == ""


def test_a_file_gets_no_progress() -> None:
    """Redirected stderr stays clean, however long it takes."""
    stream = io.StringIO()
    with Progress(stream, interval_seconds=0.001) as progress:
        progress("building net")
        time.sleep(0.02)
    assert stream.getvalue() == ""
