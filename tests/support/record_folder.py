"""A directory with records, as the commands find it: an old one of mprof's, a newer one of ours."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from memlens.cli.main import cli
from memlens.model import Process, Sample, Span, Trace
from memlens.records import native
from memlens.units import MIB

OLD = """\
CMDLINE python old.py
MEM 10.000000 1700000000.0000
FUNC __main__.load 10.0000 1700000000.0000 28.9410 1700000000.1000 0
MEM 28.941000 1700000000.1000
CHLD 4712 47.602000 1700000000.1000
MEM 12.000000 1700000000.2000
"""
FIRST, SECOND = "mprofile_20251231235959.dat", "memlens_20260131120000.memlens"


def put_records(folder: Path) -> None:
    """Write the two records, and a file that is none."""
    (folder / FIRST).write_text(OLD)
    trace = Trace("measured", [Sample(1_000_000, 7, 30 * MIB), Sample(2_000_000, 7, 5 * MIB)])
    trace.processes = [Process(7, "new.py", None, 1_000_000, 3_000_000, peak_rss_bytes=33 * MIB)]
    trace.metadata = {"command": "new.py", "figure": "rss"}
    trace.spans = [Span("__main__.f", 1_500_000, 2_500_000, 4 * MIB, 6 * MIB, 0, 7)]
    native.save(trace, folder / SECOND)
    (folder / "notes.txt").write_text("mine\n")


def type_in(*words: str) -> Result:
    """What `memlens WORDS` answers."""
    return CliRunner().invoke(cli, list(words))
