"""What the simulation stands in for elsewhere, on the card of this machine; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device answers", allow_module_level=True)

import memlens  # noqa: E402
from memlens.measurement.calibration import calibrate  # noqa: E402
from memlens.model import OutOfMemory  # noqa: E402
from memlens.model.oom import Failure  # noqa: E402
from memlens.records import load  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.gpu]
MIB = 1 << 20


def work() -> torch.Tensor:
    kept = torch.empty(MIB, device="cuda")  # 4 MiB stay
    total = (torch.empty(4 * MIB, device="cuda") * 2).sum()  # two of 16 MiB at once, 512 B stay
    del kept
    return total


def test_the_gap_sums_to_the_drivers_figure() -> None:
    """Tensors, rounding, workspaces, cache, context and others are all that the driver shows."""
    tracker = memlens.MemTracker(callback=lambda look: None)
    model = torch.nn.Linear(1, 1).cuda()
    model(torch.ones(1, 1, device="cuda"))
    gap = tracker.gap()
    tracker.close()
    assert gap.used_bytes is not None, gap.reason
    assert sum(part.bytes for part in gap.parts()) == gap.used_bytes
    assert gap.workspaces
    assert gap.process_bytes is None or gap.context_bytes > 50 * MIB


def test_lines_and_the_users_peak() -> None:
    """A line's own peak is 32 MiB above its beginning, and the user's counter keeps what it had."""
    torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
    before = torch.cuda.max_memory_allocated()
    profiler = memlens.LineProfiler(work, gpu=True)
    with profiler:
        work()
    (table,) = profiler.tables()
    line = next(row for row in table.rows if "total = " in row.source)
    assert line.gpu_peak_bytes == pytest.approx(32 * MIB, abs=MIB)
    assert torch.cuda.max_memory_allocated() == before
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()


def test_running_out_is_explained(tmp_path: Path) -> None:
    """A request above this process's share fails, and the record ends with it."""
    failures: list[Failure] = []
    torch.cuda.set_per_process_memory_fraction(0.05)
    try:
        with memlens.on_oom(tmp_path, callback=failures.append):
            kept = torch.ones(MIB, device="cuda")
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(torch.cuda.get_device_properties(0).total_memory // 8, device="cuda")
            del kept
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    (failure,) = failures
    assert failure.where.startswith("test_real_card.py:")
    assert failure.cause
    assert any(isinstance(event, OutOfMemory) for event in load(failure.record).events)


def test_a_card_calibrates() -> None:
    """Its name, a workspace of a size that PyTorch uses, and a context of hundreds of MiB or a reason."""
    found = calibrate()
    assert found.name == torch.cuda.get_device_name()
    assert found.cublas_workspace_bytes in (8_519_680, 32 * MIB)
    assert found.reason or 50 * MIB < found.context_bytes[0] <= found.context_bytes[2] < 4096 * MIB
