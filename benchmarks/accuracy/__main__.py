"""python -m benchmarks.accuracy TRUTH: compare with recorded figures, write docs/accuracy.md and its JSON.

Every row of every table is predicted, in parallel; what is done is kept in `.accuracy/`, so that a run that
was stopped goes on where it was. Results of another version of the code are run again, unless --any-version.
Tables whose packages are missing are left out, and said.
"""

from __future__ import annotations

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

from benchmarks.accuracy.figures import draw
from benchmarks.accuracy.job import RAN_OUT, Job
from benchmarks.accuracy.page import Content, as_json, content, points, render
from benchmarks.accuracy.reading import add_reading
from benchmarks.accuracy.run import Result, Store, code_version, in_mixed_order, run
from benchmarks.accuracy.tables import TABLES
from benchmarks.gpu import taken

ROOT = Path(__file__).parents[2]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("truth", type=Path, help="the folder of recorded figures")
    parser.add_argument("--tables", default=",".join(TABLES), help="names with commas; all by default")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--rivals", type=int, default=40, help="rows of each table that rivals are asked about"
    )
    parser.add_argument("--rows", type=int, help="at most so many rows of each table")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after this")
    parser.add_argument(
        "--any-version", action="store_true", help="keep results of other versions of the code"
    )
    parser.add_argument("--store", type=Path, default=ROOT / ".accuracy", help="where results are kept")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "accuracy.md")
    return parser.parse_args()


def missing(name: str) -> list[str]:
    return [package for package in TABLES[name].needs if find_spec(package) is None]


def wanted(jobs: list[Job], rows: int | None) -> list[Job]:
    """The jobs to run, in an order of which every beginning is a fair sample."""
    return in_mixed_order([job for job in jobs if not job.left_out])[:rows]


def lacks(job: Job, have: dict[str, Result], is_asked: bool) -> bool:
    """Whether a job has no result yet, or none of rivals that are to be asked."""
    if job.key not in have:
        return True
    return is_asked and TABLES[job.table].model is not None and not have[job.key].rivals


def compared(jobs: list[Job], have: dict[str, Result]) -> list[Result]:
    """The results of jobs that are not left out; a store may hold others from before they were."""
    left_out = {job.key for job in jobs if job.left_out}
    return [result for key, result in have.items() if key not in left_out]


def write(output: Path, parts: list[Content], reading: tuple[str, float] | None, code: str) -> None:
    """The page, its JSON beside it, and a picture of each table."""
    output.write_text(render(parts, reading, taken.section(taken.results())))
    output.with_suffix(".json").write_text(json.dumps(as_json(parts, reading, code)) + "\n")
    for part in parts:
        by_figure = {name: found for name, found in points(part).items() if name != RAN_OUT}
        if by_figure:
            draw(output.parent / output.stem / f"{part.table.name}.svg", part.table.title, by_figure)


def main() -> None:
    options = read_options()
    store, code = Store(options.store), code_version()
    known = None if options.any_version else code
    every: dict[str, list[Job]] = {}
    for name in TABLES:
        if lacking := missing(name):
            print(f"{name} is left out: it needs {', '.join(lacking)}")
        else:
            every[name] = TABLES[name].jobs(options.truth)
    for name in (name for name in options.tables.split(",") if name in every):
        have = store.load(name, known)
        todo = wanted(every[name], options.rows)
        asked = {job.key for job in todo[: options.rivals]}
        for is_asked in (True, False):
            batch = [job for job in todo if (job.key in asked) is is_asked and lacks(job, have, is_asked)]
            for _ in run(
                batch, store, options.workers, rivals=is_asked, code=code, most_seconds=options.seconds
            ):
                pass
    results = {name: compared(jobs, store.load(name, known)) for name, jobs in every.items()}
    reading = add_reading(results)
    write(options.output, [content(TABLES[n], jobs, results[n]) for n, jobs in every.items()], reading, code)


if __name__ == "__main__":
    main()
