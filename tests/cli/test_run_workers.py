"""`memlens run` of a program whose workers share its data, as a DataLoader's do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import multiprocessing, sys, time

if sys.argv[1] == "list":
    data = [str(number) * 3 for number in range(600_000)]
else:
    data = memoryview(bytes(range(256)) * 160_000)


def work():
    time.sleep(0.3)  # all are there, and shared
    for item in data[:600_000]:
        pass
    time.sleep(0.3)


context = multiprocessing.get_context("fork")
workers = [context.Process(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells shared pages apart")
@pytest.mark.parametrize(("kind", "copies"), [("list", True), ("bytes", False)])
def test_workers_that_copy_what_they_read(tmp_path: Path, kind: str, copies: bool) -> None:
    """Three workers that read 38 MiB of strings copy them each (pytorch#13246); 39 MiB in one buffer none."""
    (tmp_path / "load.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "memlens", "run", "--backend", "psutil_pss", "--json", "load.py", kind],
        cwd=tmp_path, text=True, capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)["copied_by_workers"]
    if copies:
        assert found["workers"] == 3
        assert 3 * 30 * 2**20 < found["bytes"] < 3 * 60 * 2**20
    else:
        assert found is None
