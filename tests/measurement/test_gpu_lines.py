"""GPU columns line by line, on a card that is not there; the user's own peak counters stay theirs."""

from __future__ import annotations

import io
import json
import re

import pytest

pytest.importorskip("torch")

import torch

import memlens
from memlens import LineProfiler
from memlens.compat.pytorch_memlab import LineProfiler as MemlabProfiler
from memlens.compat.pytorch_memlab import MemReporter, profile_every
from memlens.errors import UsageError
from memlens.measurement.lines.profiler import LineProfiler as HostLines
from memlens.model.lines import LineRow, LineTable
from memlens.render import lines as render

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_models")]
MIB = 1 << 20


def work() -> torch.Tensor:
    kept = torch.empty(MIB, device="cuda")  # 4 MiB stay
    total = (torch.empty(4 * MIB, device="cuda") * 2).sum()  # two of 16 MiB at once, 512 B stay
    del kept
    return total


def rows(table: LineTable) -> dict[str, LineRow]:
    """The rows by the first word of their line."""
    return {row.source.split()[0]: row for row in table.rows if row.source.strip()}


def test_net_peak_and_tensors_of_each_line() -> None:
    """Inside one line 32 MiB and 512 B were in use for a moment; one tensor of 512 B stayed."""
    with memlens.simulate("T4"):
        profiler = LineProfiler(work, gpu=True)
        with profiler:
            work()
        (table,) = profiler.tables()
    lines = rows(table)
    assert (lines["kept"].gpu_increment_bytes, lines["kept"].gpu_tensors) == (4 * MIB, 1)
    assert (lines["total"].gpu_increment_bytes, lines["total"].gpu_tensors) == (512, 1)
    # the product is made while its argument lives, and the sum while the product does
    assert lines["total"].gpu_peak_bytes == 32 * MIB
    assert lines["del"].gpu_increment_bytes == -4 * MIB
    assert lines["kept"].gpu_reserved_bytes == 20 * MIB
    assert sum(row.gpu_increment_bytes or 0 for row in table.body) == 512


def test_what_each_line_left_behind() -> None:
    """The tensors that were there when a line ended and not when it began, by shape and kind."""

    def step(model: torch.nn.Module, x: torch.Tensor) -> None:
        loss = model(x).relu().sum()
        x = x * 2
        loss.backward()

    with memlens.simulate("T4"):
        model, x = torch.nn.Linear(64, 32).cuda(), torch.ones(16, 64, device="cuda")
        profiler = LineProfiler(step, gpu=True)
        with profiler:
            step(model, x)
        (table,) = profiler.tables()
    left = {word: [(each.shape, each.kind) for each in row.gpu_left] for word, row in rows(table).items()}
    assert ((16, 32), "kept for backward") in left["loss"]
    assert left["x"] == [((16, 64), "tensor")]
    assert sorted(left["loss.backward()"]) == [((32,), "gradient"), ((32, 64), "gradient")]
    assert LineTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table
    assert "1 * (32, 64) float32 (gradient, 0.01 MiB)" in render.text(table)


def test_looks_are_limited() -> None:
    """A decorated function that is called for ever stops looking at all tensors after 200 lines."""
    from memlens.measurement.lines.gpu_meter import LEFT, LOOKS, LeavingMeter, counter_meter

    decorated = memlens.profile(stream=io.StringIO(), gpu=True)(work)
    with memlens.simulate("T4"):
        meter = counter_meter(0, "allocation.all.allocated", LEFT)
        assert isinstance(meter, LeavingMeter)
        meter.looks = 3
        decorated()
        decorated()
        assert meter.looks == 0
        assert meter.watch is None
        LineProfiler(work, gpu=True)
        assert meter.looks == LOOKS


def test_the_users_peaks_are_kept() -> None:
    """A peak from before, and one from inside a line, are what the user reads, during and after profiling."""
    with memlens.simulate("T4"):
        before = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        del before
        assert torch.cuda.max_memory_allocated() == 100 * MIB
        with LineProfiler(work, gpu=True):
            work()
            assert torch.cuda.max_memory_allocated() == 100 * MIB
        assert torch.cuda.max_memory_allocated() == 100 * MIB
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 100 * MIB
        assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 0
        with LineProfiler(work, gpu=True):
            work()
        assert torch.cuda.max_memory_allocated() == 36 * MIB


def test_torchs_functions_come_back() -> None:
    """After the user's reset, and after a simulation, torch's functions are the ones from before."""
    real = torch.cuda.max_memory_allocated
    with memlens.simulate("T4"):
        simulated = torch.cuda.memory_stats
        with LineProfiler(work, gpu=True):
            work()
            assert torch.cuda.memory_stats is not simulated
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.memory_stats is simulated
        with LineProfiler(work, gpu=True):
            work()
    assert torch.cuda.max_memory_allocated is real
    with memlens.simulate("A100 40GB"):
        assert torch.cuda.max_memory_allocated() == 0
        with LineProfiler(work, gpu=True):
            work()
        assert torch.cuda.max_memory_allocated() == 36 * MIB


def test_the_decorator_prints_the_columns() -> None:
    """`profile(gpu=True)` has the columns to the right of memory_profiler's."""
    out = io.StringIO()
    decorated = memlens.profile(stream=out, gpu=True)(work)
    with memlens.simulate("T4"):
        decorated()
    head = next(line for line in out.getvalue().splitlines() if line.startswith("Line #"))
    assert head.split()[:5] == ["Line", "#", "Mem", "usage", "Increment"]
    assert "GPU usage      GPU net     GPU peak GPU reserved  GPU tensors  Line Contents" in head
    line = next(line for line in out.getvalue().splitlines() if "total = " in line)
    assert "32.0 MiB" in line
    assert "+1" in line


def test_without_a_card_the_table_says_so() -> None:
    """No column of zeros: the reason stands below the table."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a card")

    def add() -> int:
        return 1 + 1

    out = io.StringIO()
    memlens.profile(stream=out, gpu=True)(add)()
    assert "GPU: n/a: no CUDA device answers." in out.getvalue()
    assert "GPU net" not in out.getvalue()


def test_memlabs_columns() -> None:
    """`active_bytes.all.peak` is the highest inside the line, whatever the user's counter was before."""
    with memlens.simulate("T4"):
        torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
        profiler = MemlabProfiler(
            work,
            columns=(
                "active_bytes.all.peak",
                "allocated_bytes.all.current",
                "allocated_bytes.large_pool.allocated",
            ),
        )
        with profiler:
            work()
        profiler.print_stats(stream=(out := io.StringIO()))
    text = out.getvalue()
    assert "work" in text.splitlines()[0]
    line = next(line for line in text.splitlines() if "total = " in line)
    figures = re.findall(r"[\d.,]+", line)[:5]
    assert figures[:3] == ["36.00", "4.00", "32.00"]


def test_memlab_names_a_column_that_was_not_followed() -> None:
    """Counters are read line by line, so the columns must be named before."""
    profiler = MemlabProfiler(work)
    with pytest.raises(UsageError, match=r"segment\.all\.peak") as caught:
        profiler.display(columns=("segment.all.peak",))
    assert "columns=" in (caught.value.hint or "")


def test_memlab_without_a_card() -> None:
    """There is nothing to read, and the error says what would."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a card")
    with pytest.raises(UsageError, match="no CUDA device answers"), MemlabProfiler(work):
        work()


def test_profile_every(capsys: pytest.CaptureFixture[str]) -> None:
    """Four calls, a table after every second."""
    decorated = profile_every(2)(work)
    with memlens.simulate("T4"):
        for _ in range(4):
            decorated()
    assert capsys.readouterr().out.count("## work") == 2


def test_a_reporter_counts_each_storage_once() -> None:
    """Tied weights are one storage of 262,144 B with both names."""
    model = torch.nn.ModuleDict({"words": torch.nn.Embedding(1024, 64), "head": torch.nn.Linear(64, 1024)})
    model["head"].weight = model["words"].weight
    out = io.StringIO()
    MemReporter(model, pre_collect=True).report(verbose=True, device="cpu", stream=out)
    line = next(line for line in out.getvalue().splitlines() if "head.weight" in line)
    assert "words.weight" in line
    assert "0.25 MiB" in line


def test_host_columns_are_unchanged() -> None:
    """Without `gpu` a table has no GPU figure."""

    def add() -> int:
        return 1 + 1

    profiler = HostLines(add)
    profiler.runcall(add)
    assert all(row.gpu_increment_bytes is None for row in profiler.tables()[0].rows)
