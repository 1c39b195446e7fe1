"""What `memlens run` costs: a program bare and under it, alternating, ratios in one run.

    python benchmarks/run_overhead.py [--seconds 5] [--pairs 7] [--memory 512] [--json]

The program computes in pure Python for about `--seconds` while it holds `--memory` MiB. Bare and recorded
runs alternate, so that both see the same machine; the figures are the median of the ratios of neighbours and
the ratio of the two best runs, which a busy machine disturbs least. A noisy machine shows in the spread of
the bare runs, which is printed beside it. Bytecode is cached, as in any installation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """\
import sys
held = bytearray(int(sys.argv[1]) << 20)
for place in range(0, len(held), 4096):
    held[place] = 1
total = 0
for number in range(int(sys.argv[2])):
    total += number & 255
    if number % 100_000 == 0:
        kept = [bytes(1000) for _ in range(1000)]
"""
# runs the command line in this process and tells its own CPU seconds, without those of the program
RECORDER = """\
import sys
from memlens.cli import main
try:
    main()
except SystemExit:
    pass
import resource
usage = resource.getrusage(resource.RUSAGE_SELF)
print(usage.ru_utime + usage.ru_stime)
"""
MODES: dict[str, list[str]] = {
    "run": ["run", "-q", "--force", "-o", "x.memlens"],
    "run --nopython": ["run", "-q", "--nopython", "--force", "-o", "x.memlens"],
}


def seconds(command: list[str], folder: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds of the command with all its children, and the number it printed last."""
    import resource

    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, float(done.stdout.split()[-1]) if done.stdout else 0.0


def loops_for(wanted: float, memory: int, folder: Path) -> int:
    """How many loops take about that long here."""
    count = 2_000_000
    taken, *_ = seconds([sys.executable, "program.py", str(memory), str(count)], folder)
    return int(count * wanted / taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--memory", type=int, default=512, help="MiB that the program holds")
    parser.add_argument("--mode", choices=list(MODES), action="append", help="instead of all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        words = ["program.py", str(options.memory), str(loops_for(options.seconds, options.memory, folder))]
        for mode in options.mode or MODES:
            pairs = [
                (
                    seconds([sys.executable, *words], folder),
                    seconds([sys.executable, "-c", RECORDER, *MODES[mode], sys.executable, *words], folder),
                )
                for _ in range(options.pairs)
            ]
            rows[mode] = summary(pairs)
    print(json.dumps(rows) if options.json else "\n".join(line(mode, row) for mode, row in rows.items()))


def summary(pairs: list[tuple[tuple[float, float, float], tuple[float, float, float]]]) -> dict[str, float]:
    """`program_ratio` is the program's own CPU seconds, under memlens against bare: is it slowed down?"""
    bare = [pair[0][0] for pair in pairs]
    return {
        "bare_seconds": statistics.median(bare),
        "bare_spread_percent": 100 * (max(bare) - min(bare)) / statistics.median(bare),
        "wall_ratio": statistics.median(recorded[0] / plain[0] for plain, recorded in pairs),
        "best_ratio": min(pair[1][0] for pair in pairs) / min(bare),
        "added_wall_seconds": statistics.median(recorded[0] - plain[0] for plain, recorded in pairs),
        "program_ratio": statistics.median((kept[1] - kept[2]) / plain[1] for plain, kept in pairs),
        "recorder_cpu_seconds": statistics.median(recorded[2] for _, recorded in pairs),
    }


def line(mode: str, row: dict[str, float]) -> str:
    return (
        f"{mode:16} bare {row['bare_seconds']:.2f} s (spread {row['bare_spread_percent']:.1f} %)  "
        f"wall x{row['wall_ratio']:.4f} (+{row['added_wall_seconds']:.3f} s), "
        f"best against best x{row['best_ratio']:.4f}  program's CPU x{row['program_ratio']:.4f}  "
        f"recorder's CPU {row['recorder_cpu_seconds']:.3f} s"
    )


if __name__ == "__main__":
    main()
