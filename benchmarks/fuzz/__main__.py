"""python -m benchmarks.fuzz [--cases 10000]: damaged files and texts against every reader.

Fails where one raises something else than memlens' own errors, takes more than 10 seconds, or brings the
process 500 MiB above its start. What failed is kept in --keep, with what it said.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from benchmarks.fuzz import mutate, readers, seeds

SECONDS, GROWTH_BYTES = 10, 500 * 2**20
CHUNK = 250  # cases of one process
TEXT_SHARE = 0.2


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def case(number: int, files: list[Path], folder: Path) -> tuple[str, Path | None]:
    """One case: what was read, and the damaged file."""
    chance = random.Random(number)
    if chance.random() < TEXT_SHARE:
        return readers.read_text(chance), None
    good = chance.choice(files)
    path = folder / f"case{good.suffix}"
    path.write_bytes(mutate.damaged(good, chance))
    return readers.read_file(path, good, chance), path


def work(first: int, count: int, files: list[Path], folder: Path, keep: Path) -> int:
    """Run cases in this process; the number of failures."""
    failures = 0
    os.chdir(folder)
    signal.signal(signal.SIGALRM, _too_long)
    for good in files:  # what is imported and drawn once is not the damaged file's
        readers.read_file(good, good, random.Random(0))
    for number in range(first, first + count):
        start, path = peak_bytes(), folder / f"case{first}"
        signal.alarm(SECONDS)
        said = ""
        try:
            said, _ = case(number, files, folder)
        except BaseException:
            said = traceback.format_exc()
            failed = True
        else:
            failed = False
        finally:
            signal.alarm(0)
        if (grown := peak_bytes() - start) > GROWTH_BYTES:
            said, failed = f"grew by {grown >> 20} MiB\n{said}", True
        if failed:
            failures += 1
            keep.mkdir(parents=True, exist_ok=True)
            for path in folder.glob("case.*"):
                shutil.copy(path, keep / f"{number}{path.suffix}")
            (keep / f"{number}.txt").write_text(said, errors="backslashreplace")
            print(f"case {number}: {said.strip().splitlines()[-1][:150]!r}", flush=True)
        for path in folder.glob("case.*"):
            path.unlink()
    return failures


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument(
        "--first", type=int, default=0, help="the first case's number: each is always the same"
    )
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="what failed")
    parser.add_argument("--seeds", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.seeds:
            files = sorted(path for path in options.seeds.iterdir() if path.suffix in mutate.INSIDE)
            files = [path for path in files if path.suffix != ".json"]
            sys.exit(min(250, work(options.first, options.cases, files, Path(name), options.keep)))
        seeds.make(Path(name))
        failures, started = 0, time.monotonic()
        for first in range(options.first, options.first + options.cases, CHUNK):
            count = min(CHUNK, options.first + options.cases - first)
            command = [
                sys.executable,
                "-m",
                "benchmarks.fuzz",
                "--seeds",
                name,
                "--keep",
                str(options.keep.resolve()),
            ]
            done = subprocess.run([*command, "--first", str(first), "--cases", str(count)], check=False)
            failures += done.returncode if done.returncode >= 0 else 1
            if done.returncode < 0:
                print(f"cases from {first}: the process died of signal {-done.returncode}")
            seconds = time.monotonic() - started
            done_cases = first + count - options.first
            print(f"{done_cases} of {options.cases} cases, {failures} failed, {seconds:.0f} s", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
