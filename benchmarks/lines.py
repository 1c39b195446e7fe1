"""The cost of a line, beside memory_profiler's in the same run: python benchmarks/lines.py

Needs memory_profiler 0.61 for the comparison (pip install memory_profiler setuptools) and numpy for the
heavy function. Prints microseconds per executed line, above the function's own time.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from memlens.measure.lines import LineProfiler


def tight(n: int) -> int:
    total = 0
    while total < n:
        total += 1
    return total


def growing(n: int) -> list[str]:
    kept = []
    for i in range(n):
        kept.append(str(i))  # noqa: PERF401
    return kept


def textbook(n: int = 10**6) -> int:
    total = 0
    for i in range(5):
        L = [j ^ (j >> i) for j in range(n)]
        total += sum(L)
        del L
    return total


def heavy(n: int) -> float:
    import numpy as np

    total = 0.0
    for i in range(n):
        matrix = np.full((300, 300), float(i))
        product = matrix @ matrix
        total += float(product.sum())
    return total


def seconds(call: Callable[[], Any], repeat: int = 5) -> float:
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def memlens(function: Callable[[int], Any], n: int) -> Callable[[], Any]:
    return lambda: LineProfiler(function).runcall(function, n)


def memory_profiler(function: Callable[[int], Any], n: int) -> Callable[[], Any]:
    import memory_profiler as module

    return lambda: module.LineProfiler(backend="psutil")(function)(n)


def per_line(profiled: Callable[..., Any], function: Callable[[int], Any], n: int) -> float:
    bare = seconds(lambda: function(n))
    return (seconds(profiled(function, n)) - bare) / (2 * n) * 1e6


def main() -> None:
    print(f"Python {sys.version.split()[0]}")
    for function in (tight, growing):
        ours = per_line(memlens, function, 100_000)
        try:
            theirs = per_line(memory_profiler, function, 2_000)
        except ImportError:
            print(f"{function.__name__:10} memlens {ours:6.2f} us/line")
            continue
        print(
            f"{function.__name__:10} memlens {ours:6.2f} us/line, "
            f"memory_profiler {theirs:6.1f} us/line: x{theirs / ours:.0f}"
        )
    print(f"textbook   {seconds(memlens(textbook, 10**6), 1):.2f} s (bare {seconds(textbook, 1):.2f} s)")
    bare, lines = seconds(lambda: heavy(300)), seconds(memlens(heavy, 300))
    print(f"heavy      {lines:.3f} s, bare {bare:.3f} s: {100 * (lines / bare - 1):+.1f} %")


if __name__ == "__main__":
    main()
