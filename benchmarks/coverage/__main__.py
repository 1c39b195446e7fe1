"""python -m benchmarks.coverage [--only REGEX]: torch's operators, modules and optimizers, simulated.

Rows that are in --results already are not run again (--fresh: from the start), so that it can be stopped.
"""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import memlens
from benchmarks.coverage import host, modules, operators, optimizers, simulated
from benchmarks.coverage.apart import run_apart
from benchmarks.coverage.compare import AGREES, CRASHES, NO_HOST, Row, verdict
from benchmarks.coverage.page import render
from benchmarks.coverage.programs import Case
from benchmarks.coverage.shared_code import load
from memlens.devices import as_gpu

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
CARD = "A100 80GB"
SAMPLES = 12
SECONDS = 60.0


def warm_up() -> None:
    """What every row would otherwise do again in its own process."""
    torch.set_num_threads(1)
    load()
    as_gpu(CARD)
    inspect.stack()  # torch's tables call it, and it remembers the files of all modules


def cases(samples: int) -> Iterator[Case]:
    for table in (operators, modules, optimizers):
        yield from table.cases(samples)


def measure(case: Case) -> dict[str, Any]:
    """The row of a case: every sample on the CPU first, then in one simulation."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    row = Row(case.table, case.name, case.variant, case.dtype)
    programs = list(case.programs())
    real = [host.observe(program.prepare, program.run) for program in programs]
    with memlens.simulate(CARD) as sim:
        for program, seen in zip(programs, real, strict=True):
            found = simulated.observe(sim, program.prepare, program.run)
            row.add(verdict(case.key, seen, found), program.label, len(found.uncounted))
    return row.to_dict()


def run(case: Case, seconds: float) -> Row:
    """The row, measured in a process of its own."""
    found, why = run_apart(lambda: measure(case), seconds)
    if found is None:
        return Row(case.table, case.name, case.variant, case.dtype, CRASHES, why, samples=1)
    return Row(**found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--only", metavar="REGEX", help="rows whose name it finds; the page is not written")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"at most, per row ({SAMPLES})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"at most, per row ({SECONDS:g})")
    parser.add_argument("--results", type=Path, default=Path("build/coverage.jsonl"), help="rows as JSON")
    parser.add_argument("--again", action="store_true", help="run rows in --results that do not agree again")
    parser.add_argument("--fresh", action="store_true", help="run the rows that are in --results again")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="where to write (docs/coverage.md)")
    options = parser.parse_args()
    warm_up()
    wanted = [c for c in cases(options.samples) if options.only is None or re.search(options.only, c.key)]
    done = {} if options.fresh or not options.results.exists() else dict(_read(options.results))
    if options.again:
        done = {key: row for key, row in done.items() if row.outcome in (AGREES, NO_HOST)}
    rows = measure_all(wanted, done, options.results, options.seconds)
    if options.only is None:
        options.output.write_text(render(rows, torch.__version__))
        print(f"wrote {options.output}")


def measure_all(wanted: list[Case], done: dict[str, Row], results: Path, seconds: float) -> list[Row]:
    """The rows of `wanted`, from `done` where they are there, others run and written down at once."""
    results.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with results.open("w") as file:
        file.writelines(_line(key, row) for key, row in done.items())
        for number, case in enumerate(wanted, 1):
            row = done.get(case.key)
            if row is None:
                row = run(case, seconds)
                file.write(_line(case.key, row))
                file.flush()
                _report(number, len(wanted), case, row)
            rows.append(row)
    return rows


def _line(key: str, row: Row) -> str:
    return json.dumps({"key": key} | row.to_dict()) + "\n"


def _read(results: Path) -> Iterator[tuple[str, Row]]:
    for line in results.read_text().splitlines():
        record = json.loads(line)
        yield record.pop("key"), Row(**record)


def _report(number: int, count: int, case: Case, row: Row) -> None:
    what = f": {row.what} [{row.sample}]" if row.what else ""
    print(f"[{number}/{count}] {case.key}: {row.outcome}{what}", flush=True, file=sys.stderr)


if __name__ == "__main__":
    main()
