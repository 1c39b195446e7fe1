"""Predict jobs in parallel, with progress; what was predicted is kept, so that a run can be continued."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.accuracy.job import Job, Predicted

JOBS_PER_WORKER = 50  # then a fresh process: caches of some libraries only grow


class Result(NamedTuple):
    """A job's figures, or the error that it ended with; what rivals said, in MiB or words."""

    table: str
    key: str
    family: str
    measured_mib: dict[str, float]
    predicted: dict[str, Predicted]
    rivals: dict[str, float | str]
    left_out: str
    seconds: float
    code: str


def code_version() -> str:
    """Changes with any line of memlens or of the benchmark."""
    import memlens

    folders = (Path(memlens.__file__).parent, Path(__file__).parent)
    found = hashlib.sha1()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".toml")):
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


def in_mixed_order(jobs: list[Job]) -> list[Job]:
    """The same order each time, in which any beginning is a fair sample."""
    return sorted(jobs, key=lambda job: hashlib.sha1(job.key.encode()).hexdigest())


def prepare_worker() -> None:
    import torch

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)


def run_job(job: Job, ask_rivals: bool, code: str) -> Result:
    """Predict one job. A failure is a reason to leave it out, and is said."""
    from benchmarks.accuracy.rivals import ask
    from benchmarks.accuracy.tables import TABLES

    table = TABLES[job.table]
    start = time.perf_counter()
    predicted: dict[str, Predicted] = {}
    failed = ""
    try:
        predicted = table.predict(job)
    except Exception as problem:
        failed = f"failed: {type(problem).__name__}: {problem}".splitlines()[0][:200]
        if os.environ.get("ACCURACY_TRACEBACK"):
            traceback.print_exc()
    seconds = time.perf_counter() - start
    rivals = ask(table, job) if ask_rivals and table.model and not failed else {}
    return Result(job.table, job.key, job.family, job.measured_mib, predicted, rivals, failed, seconds, code)


class Store:
    """Results as lines of JSON, one file a table; the newest line of a job counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, table: str, code: str | None = None) -> dict[str, Result]:
        """Results by key; of this version of the code only, if one is named."""
        path = self.folder / f"{table}.jsonl"
        results: dict[str, Result] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            result = from_line(line)
            if code is None or result.code == code:
                results[result.key] = result
        return results

    def add(self, result: Result) -> None:
        with (self.folder / f"{result.table}.jsonl").open("a") as file:
            file.write(json.dumps(result._asdict()) + "\n")


def from_line(line: str) -> Result:
    fields: dict[str, Any] = json.loads(line)
    fields["predicted"] = {name: Predicted(*value) for name, value in fields["predicted"].items()}
    return Result(**fields)


def run(
    jobs: list[Job], store: Store, workers: int, *, rivals: bool, code: str, most_seconds: float
) -> Iterator[Result]:
    """Each job's result as it comes, kept in `store`; no new job is begun after `most_seconds`."""
    end = time.monotonic() + most_seconds
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, prepare_worker, max_tasks_per_child=JOBS_PER_WORKER) as pool:
        waiting = iter(jobs)
        running: set[Future[Result]] = set()
        done = 0
        while True:
            while len(running) < workers + 1 and time.monotonic() < end:
                job = next(waiting, None)
                if job is None:
                    break
                running.add(pool.submit(run_job, job, rivals, code))
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                result = future.result()
                store.add(result)
                done += 1
                show(done, len(jobs), result)
                yield result


def show(done: int, total: int, result: Result) -> None:
    """A line of progress on stderr."""
    parts = [
        f"{name} {100 * (result.predicted[name].mib / mib - 1):+.2f} %"
        for name, mib in result.measured_mib.items()
        if name in result.predicted and mib
    ]
    said = result.left_out or ", ".join(parts)
    print(
        f"{done}/{total}  {result.table}  {result.key}  {result.seconds:.1f} s  {said}",
        file=sys.stderr,
        flush=True,
    )
