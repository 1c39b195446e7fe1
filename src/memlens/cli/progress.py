"""What is being done, on stderr, once it takes longer than a second; nothing where stderr is a file."""

from __future__ import annotations

import sys
import time
from types import TracebackType

SILENT_SECONDS = 1.0


class Progress:
    """`progress("step 1: forward")` shows one line that the next one replaces and the end wipes out.

    The text is drawn only when something new is said, so the work itself runs undisturbed.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.shown = False

    def __enter__(self) -> Progress:
        return self

    def __call__(self, text: str) -> None:
        if time.monotonic() - self.started < SILENT_SECONDS or not sys.stderr.isatty():
            return
        print(f"\r\033[K{text} ...", end="", file=sys.stderr, flush=True)
        self.shown = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
