"""The program's own stopwatch, not Python's profiler."""

import contextlib
import time


@contextlib.contextmanager
def stopwatch(what):
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.4f} s")
