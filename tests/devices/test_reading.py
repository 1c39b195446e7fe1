"""A card's context from one figure that somebody read."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlens.devices import find_gpu, find_in_catalogue
from memlens.devices.calibrated import save_calibration
from memlens.devices.reading import Reserved, of_idle_process, of_running_program
from memlens.errors import UsageError
from memlens.units import MIB

A100 = find_in_catalogue("A100 40GB")  # 300 MiB at the start, 450 after a step; cuDNN adds 350 at most


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration directory of the test's own."""
    monkeypatch.setenv("MEMLENS_CONFIG_DIR", str(tmp_path))


def mib(sizes: tuple[int, int, int] | None) -> list[int]:
    assert sizes is not None
    return [size // MIB for size in sizes]


def test_an_idle_process_loads_more_when_it_works() -> None:
    """487 MiB idle: 150 more for the kernels of a step, and up to 350 for cuDNN."""
    read = of_idle_process(A100, 487 * MIB)
    assert mib(read.context_bytes) == [487, 637, 987]
    assert mib(read.plain_context_bytes) == [487, 637, 637]


def test_the_context_is_what_is_shown_less_what_is_reserved() -> None:
    """3,000 MiB shown, 2,000 reserved, 20 less or 50 more: 1,000 MiB, and 150 of kernels either way."""
    reserved = Reserved(1980 * MIB, 2000 * MIB, 2050 * MIB, has_cudnn=True)
    read = of_running_program(A100, 3000 * MIB, reserved, "net.py")
    assert mib(read.context_bytes) == [800, 1000, 1170]
    assert mib(read.plain_context_bytes) == [450, 1000, 1170]  # it may have been cuDNN that was read
    without = of_running_program(A100, 3000 * MIB, reserved._replace(has_cudnn=False), "net.py")
    assert mib(without.context_bytes) == [800, 1000, 1520]
    assert mib(without.plain_context_bytes) == [800, 1000, 1170]


def test_a_figure_below_what_is_reserved_is_no_reading() -> None:
    """2,000 MiB shown and 2,000 reserved leave nothing for a context."""
    reserved = Reserved(1000 * MIB, 2000 * MIB, 2000 * MIB, has_cudnn=False)
    with pytest.raises(UsageError, match="leave nothing for a context: 2,000"):
        of_running_program(A100, 2000 * MIB, reserved, "net.py")


def test_a_reading_is_kept_for_its_card_and_named() -> None:
    """The memory and workspaces stay the catalogue's: only the context was read."""
    read = of_idle_process(A100, 487 * MIB)
    save_calibration(read)
    card = find_gpu("A100 40GB")
    assert mib(card.context_bytes) == [487, 637, 987]
    assert mib(card.device(has_cudnn=False).context_bytes) == [487, 637, 637]
    assert card.device().context_note == f"read on this card on {read.measured} (487.00 MiB idle)"
    assert (card.memory_bytes, card.note) == (A100.memory_bytes, A100.note)
    assert find_gpu("T4") == find_in_catalogue("T4")


def test_a_context_that_is_given_has_no_range() -> None:
    """For one prediction: --context."""
    assert A100.with_context(700 * MIB).device(has_cudnn=False).context_bytes == (700 * MIB,) * 3
