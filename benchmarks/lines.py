"""The cost of a line, beside memory_profiler's in the same run: python benchmarks/lines.py

Needs memory_profiler 0.61 for the comparison (pip install memory_profiler setuptools), numpy and pandas for
the heavy functions. Prints microseconds per executed line, above the function's own time; for the heavy ones,
whose lines take long, the median of the ratios of neighbours, bare and profiled by turns, in CPU
seconds, which other programs disturb least.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from memlens.measurement.lines.profiler import LineProfiler


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


def heavy_numpy(n: int) -> float:
    import numpy as np

    total = 0.0
    for i in range(n):
        matrix = np.full((300, 300), float(i))
        product = matrix @ matrix
        total += float(product.sum())
    return total


def heavy_pandas(n: int) -> float:
    import numpy as np
    import pandas as pd

    total = 0.0
    numbers = np.arange(20_000)
    for i in range(n):
        frame = pd.DataFrame({"key": numbers % 50, "value": numbers * float(i)})
        frame["share"] = frame["value"] / (frame["value"].sum() + 1)
        sums = frame.groupby("key")["share"].sum()
        joined = frame.merge(sums.rename("of"), left_on="key", right_index=True)
        total += float(joined[joined["value"] > 100]["of"].mean())
        del frame, joined
    return total


def ratio(function: Callable[[int], Any], n: int, pairs: int) -> tuple[float, float, float]:
    """CPU seconds bare, the median of profiled over bare, and the best profiled over the best bare."""
    bare, profiled = [], []
    for _ in range(pairs):
        bare.append(seconds(lambda: function(n), 1, time.process_time))
        profiled.append(seconds(memlens(function, n), 1, time.process_time))
    median = statistics.median(p / b for p, b in zip(profiled, bare, strict=True))
    return statistics.median(bare), median, min(profiled) / min(bare)


def seconds(
    call: Callable[[], Any], repeat: int = 5, clock: Callable[[], float] = time.perf_counter
) -> float:
    times = []
    for _ in range(repeat):
        began = clock()
        call()
        times.append(clock() - began)
    return statistics.median(times)


def memlens(function: Callable[[int], Any], n: int) -> Callable[[], Any]:
    return lambda: LineProfiler(function).runcall(function, n)


def memory_profiler(function: Callable[[int], Any], n: int) -> Callable[[], Any]:
    import memory_profiler as module

    return lambda: module.LineProfiler(backend="psutil")(function)(n)


def per_line(function: Callable[[int], Any], rounds: int = 9) -> tuple[list[float], list[float]]:
    """Microseconds of CPU a line above the bare function, of memlens and of memory_profiler, by turns."""
    ours, theirs = [], []
    for _ in range(rounds):
        for found, tool, n in ((ours, memlens, 100_000), (theirs, memory_profiler, 2_000)):
            bare = seconds(lambda: function(100_000), 1, time.process_time) * n / 100_000
            with suppress(ImportError):
                profiled = seconds(tool(function, n), 1, time.process_time)
                found.append((profiled - bare) / (2 * n) * 1e6)
    return ours, theirs


def main() -> None:
    print(f"Python {sys.version.split()[0]}")
    for function in (tight, growing):
        ours, theirs = per_line(function)
        print(f"{function.__name__:10} memlens {statistics.median(ours):6.2f} us/line", end="")
        if theirs:
            ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
            print(f", memory_profiler {statistics.median(theirs):6.1f} us/line: ", end="")
            print(f"x{statistics.median(ratios):.0f} (median of {len(ratios)} pairs)", end="")
            print(f", x{min(theirs) / min(ours):.0f} (best against best)", end="")
        print()
    print(f"textbook   {seconds(memlens(textbook, 10**6), 1):.2f} s (bare {seconds(textbook, 1):.2f} s)")
    for function, n in ((heavy_numpy, 60), (heavy_pandas, 20)):
        try:
            bare, median, best = ratio(function, n, 25)
        except ImportError as error:
            print(f"{function.__name__:12} left out: {error}")
            continue
        print(
            f"{function.__name__:12} bare {bare:.3f} s, profiled {100 * (median - 1):+.1f} % "
            f"(median of 25 pairs), {100 * (best - 1):+.1f} % (best against best)"
        )


if __name__ == "__main__":
    main()
