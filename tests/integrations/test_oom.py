"""Running out on a card that is not there: numbers, names, and only advice that is not followed yet."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import memlens
from memlens import on_oom
from memlens.devices import find_gpu
from memlens.devices.oom_observers import OBSERVERS
from memlens.measurement.oom.failure import is_oom
from memlens.model import Category, OutOfMemory
from memlens.model.oom import Failure
from memlens.records import load
from memlens.render import oom as render

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_models")]
MIB = 1 << 20


class Block(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


def blocks(count: int = 4, width: int = 512) -> nn.Module:
    return nn.Sequential(*(Block(width) for _ in range(count)))


def train(model: nn.Module, batch: int, width: int = 512) -> None:
    """One step with a batch on the device."""
    model(torch.randn(batch, width, device="cuda")).sum().backward()


T4_CONTEXT_BYTES = find_gpu("T4").context_bytes[1]


def small(room_bytes: int = 150 * MIB, **options: Any) -> Any:
    """A T4 on which that much is left beside the context."""
    return memlens.simulate("T4", memory_bytes=T4_CONTEXT_BYTES + room_bytes, raise_oom=True, **options)


def failure_of(
    program: Callable[[], Any], room_bytes: int = 150 * MIB, folder: Path | None = None, **options: Any
) -> Failure:
    """The first failure of a program on a small card."""
    failures: list[Failure] = []
    with (
        on_oom(folder, callback=failures.append) as recorder,
        small(room_bytes, **options),
        pytest.raises(torch.OutOfMemoryError),
    ):
        program()
    assert recorder.failures == failures
    return failures[0]


def words(failure: Failure) -> str:
    return " ".join(advice.text for advice in failure.advice)


def too_large_a_batch() -> None:
    train(blocks().cuda(), 16_384)


def test_numbers_place_and_module() -> None:
    """The request, the line, the module, what was free, and that tensors are sorted by purpose."""
    failure = failure_of(too_large_a_batch)
    assert failure.device == "cuda:0"
    assert failure.asked_bytes == 32 * MIB  # 16,384 x 512 x 4 bytes
    assert failure.where.startswith("test_oom.py:")
    assert failure.where.endswith("in forward")
    assert failure.module == "1"
    assert failure.total_bytes == T4_CONTEXT_BYTES + 150 * MIB
    assert failure.reserved_bytes is not None
    assert failure.free_bytes is not None
    assert failure.reserved_bytes + failure.free_bytes == 150 * MIB
    assert failure.by_category[Category.PARAMETER] == 4 * (512 * 512 + 512) * 4
    assert failure.by_category[Category.ACTIVATION] == 2 * 32 * MIB  # the input and the first block's output


def test_advice_of_activations() -> None:
    """fp32 without checkpoints: autocast, recomputing and a smaller batch are named, with bytes."""
    failure = failure_of(too_large_a_batch)
    assert "autocast" in words(failure)
    assert "checkpoint" in words(failure)
    assert "smaller batch" in words(failure)
    assert "expandable" not in words(failure)  # the card is full: no setting helps
    (saves,) = [advice.saves_bytes for advice in failure.advice if "checkpoint" in advice.text]
    assert saves == 64 * MIB


def test_autocast_that_is_on_is_not_advised() -> None:
    """Inside autocast nobody is told to use autocast."""

    def program() -> None:
        model = blocks().cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            train(model, 32_768)

    assert "autocast" not in words(failure_of(program))


def test_checkpointing_that_is_on_is_not_advised() -> None:
    """A model that recomputes already is not told to."""
    from torch.utils.checkpoint import checkpoint

    def program() -> None:
        model, x = blocks().cuda(), torch.randn(16_384, 512, device="cuda")
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)

    assert "checkpoint" not in words(failure_of(program))


def test_eval_mode_with_gradients() -> None:
    """A model in eval mode that records for backward is told of no_grad; under no_grad it is not."""
    assert "no_grad" in words(failure_of(lambda: train(blocks().eval().cuda(), 16_384)))

    def quiet() -> None:
        model = blocks().eval().cuda()
        with torch.no_grad():
            model(torch.randn(32_768, 512, device="cuda"))

    assert "no_grad" not in words(failure_of(quiet))


def test_losses_that_keep_their_graphs() -> None:
    """`losses.append(loss)` in a loop runs out one day; the list is named (case of the FAQ)."""

    def program() -> None:
        model, losses = blocks().cuda(), []
        while True:
            losses.append(model(torch.randn(2048, 512, device="cuda")).sum())

    failure = failure_of(program)
    (advice,) = [advice.text for advice in failure.advice if "keep their graphs" in advice.text]
    assert re.match(r"\d+ losses keep their graphs \(losses\[\d\], losses\[\d\], \.\.\.\)", advice)


def test_the_optimizers_copy() -> None:
    """Adam over all parameters at once needs room for a copy of them: fused or foreach=False."""

    def program() -> None:
        model = blocks(30).cuda()
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
        train(model, 16)
        optimizer.step()

    assert "fused=True" in words(failure_of(program))


def holes() -> None:
    """Every second of 30 tensors of 4 MiB is freed, so 60 MiB lie free in holes of 4; 48 are asked for."""
    kept = [torch.empty(MIB, device="cuda") for _ in range(30)]
    del kept[::2]
    torch.empty(12 * MIB, device="cuda")


def test_fragmentation_is_named_with_its_figures(tmp_path: Path) -> None:
    """Free memory in pieces too small: how much, and the largest; no setting joins holes between tensors."""
    failure = failure_of(holes, 130 * MIB, tmp_path)
    large = next(pool for pool in failure.pools if pool.pool == "large")
    assert (large.free_bytes, large.largest_free_bytes) == (60 * MIB, 4 * MIB)
    assert "this is fragmentation" in failure.cause
    assert "expandable" not in words(failure)


def rest() -> None:
    """6 MiB lie in a segment of 36: its other 30 and the 44 that the card has left are no 50 in a piece."""
    first = torch.empty(9 * MIB, device="cuda")
    del first
    second = torch.empty(6 * MIB // 4, device="cuda")
    third = torch.empty(50 * MIB // 4, device="cuda")
    fourth = torch.empty(60 * MIB // 4, device="cuda")
    del second, third, fourth


def test_expandable_segments_are_advised_where_they_help(tmp_path: Path) -> None:
    """A replay of the recorded requests fits with the setting, so it is named."""
    failure = failure_of(rest, 80 * MIB, tmp_path)
    assert failure.asked_bytes == 50 * MIB
    assert "expandable_segments:True" in words(failure)


def test_expandable_segments_that_are_on_are_not_advised(tmp_path: Path) -> None:
    """With the setting on the program runs out one tensor later, and is not told to set it."""
    failure = failure_of(rest, 80 * MIB, tmp_path, alloc_conf="expandable_segments:True")
    assert failure.asked_bytes == 60 * MIB
    assert "expandable" not in words(failure)


def test_a_record_is_saved_and_read_again(tmp_path: Path) -> None:
    """The record is a torch snapshot whose last event is the failure; the explanation names it."""
    out = io.StringIO()
    with (
        on_oom(tmp_path, stream=out),
        small(),
        pytest.raises(torch.OutOfMemoryError),
    ):
        too_large_a_batch()
    (path,) = tmp_path.glob("memlens_oom_*.pickle")
    assert isinstance(load(path).events[-1], OutOfMemory)
    said = out.getvalue()
    for part in (
        "out of memory on cuda:0",
        "32.00 MiB more was asked for",
        "by module",
        "by line",
        path.name,
    ):
        assert part in said
    assert "test_oom.py:" in said


def test_retries_are_explained_three_times(tmp_path: Path) -> None:
    """A loop that halves the batch until it fits fills no disk: three records, then a line each."""
    out = io.StringIO()
    with on_oom(tmp_path, stream=out), small():
        for batch in (2**20, 2**19, 2**18, 2**17, 2**16):
            try:
                train(blocks().cuda(), batch)
            except torch.OutOfMemoryError:
                continue
    assert len(list(tmp_path.iterdir())) == 3
    assert out.getvalue().count("once more") == 2


def test_what_a_caught_error_keeps() -> None:
    """Tensors stay after a caught failure while its traceback lives: who_holds names the frames."""
    with small():
        try:
            too_large_a_batch()
        except torch.OutOfMemoryError as error:
            kept = error
        held = torch.cuda.memory_allocated()
        frame = kept.__traceback__.tb_next.tb_next.tb_frame
        found = memlens.who_holds(next(frame.f_locals["model"].parameters()))
        assert [holder.expression.split(".")[0] for holder in found.through("traceback")] == ["kept"]
        del frame, found, kept
        assert torch.cuda.memory_allocated() < held - 60 * MIB


@pytest.mark.parametrize(("error", "answer"), [
    (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
    (RuntimeError("NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp"), True),
    (RuntimeError("shapes cannot be multiplied"), False),
    (MemoryError(), False),
])  # fmt: skip
def test_errors_without_a_type_of_their_own(error: Exception, answer: bool) -> None:
    """MPS, the CPU and MIG slices say it in words."""
    assert is_oom(error) is answer


def test_a_programs_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the CPU's allocator that ends the program is explained before its traceback."""
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)
    failures: list[Failure] = []
    with on_oom(None, callback=failures.append):
        try:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        except RuntimeError as error:
            sys.excepthook(type(error), error, error.__traceback__)
    (failure,) = failures
    assert failure.device == "cpu"
    assert failure.where.endswith("in test_a_programs_last_error")


def test_the_cpus_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 PiB are more than an address can name: the CPU's allocator says what was asked for, and so do we."""
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)
    failures: list[Failure] = []
    with on_oom(None, callback=failures.append):
        try:
            torch.empty(1 << 56, dtype=torch.uint8)
        except RuntimeError as error:
            sys.excepthook(type(error), error, error.__traceback__)
    (failure,) = failures  # once, though it was raised and ended the program
    assert (failure.device, failure.asked_bytes) == ("cpu", 1 << 56)
    assert failure.total_bytes is not None
    assert 0 < failure.free_bytes < failure.total_bytes < 1 << 56
    assert words(failure).startswith("this one request is larger than the ")
    assert "larger card" not in words(failure)  # what is held does not matter here
    assert "this machine has " in render.text(failure)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python tells of caught exceptions since 3.12")
@pytest.mark.parametrize(("words", "device", "asked"), [
    ("MPS backend out of memory (MPS allocated: 8.00 GB). Tried to allocate 256.00 MB on private pool.",
     "mps:0", 256 * MIB),
    ("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to allocate "
     "4096 bytes. Error code 12 (Cannot allocate memory)", "cpu", 4096),
])  # fmt: skip
def test_errors_that_the_program_catches(words: str, device: str, asked: int) -> None:
    """A loop that halves its batch catches them: each is told once, where it was raised, with its bytes."""

    def step() -> None:
        raise RuntimeError(words)

    failures: list[Failure] = []
    with on_oom(None, callback=failures.append):
        with contextlib.suppress(RuntimeError):
            step()
        with contextlib.suppress(ValueError):
            raise ValueError(words)  # no allocator raises one
    with contextlib.suppress(RuntimeError):
        step()  # nobody listens any more
    (failure,) = failures
    assert (failure.device, failure.asked_bytes) == (device, asked)
    assert failure.where.endswith("in step")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record goes to the temporary directory, and that is said; without room anywhere it says so."""
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    full = Path("/dev/full") if Path("/dev/full").exists() else tmp_path / "missing"
    failure = failure_of(too_large_a_batch, folder=full)
    (record,) = spare.iterdir()
    assert failure.record == str(record)
    assert failure.unsaved.startswith(f"nothing could be written to {full}: ")
    assert isinstance(load(record).events[-1], OutOfMemory)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    failure = failure_of(too_large_a_batch, folder=full)
    assert (failure.record, bool(failure.unsaved)) == ("", True)
    assert failure.lines  # read from memory all the same


def test_closing_leaves_no_trace() -> None:
    """The hook and the observers are those from before."""
    hook, observers = sys.excepthook, list(OBSERVERS)
    on_oom(None).close()
    assert sys.excepthook is hook
    assert observers == OBSERVERS
