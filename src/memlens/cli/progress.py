"""What is being done, on stderr, once it takes longer than a second; nothing where stderr is a file."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

INTERVAL_SECONDS = 1.0


class Progress:
    """`progress("step 1: forward")` says what is being done; a thread draws it once a second, in one line.

    >>> with Progress() as progress:
    ...     progress("building")
    """

    def __init__(self, stream: TextIO | None = None, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self.stream = stream or sys.stderr
        self.interval_seconds = interval_seconds
        self.text = ""
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __call__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> Progress:
        if self.stream.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _draw(self) -> None:
        shown = False
        while not self._done.wait(self.interval_seconds):
            seconds = time.monotonic() - self._started
            self.stream.write(f"\r\033[K{self.text} ... {seconds:.0f} s")
            self.stream.flush()
            shown = True
        if shown:
            self.stream.write("\r\033[K")
            self.stream.flush()
