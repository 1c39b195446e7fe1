"""The cards in this machine, or why none can be seen."""

from __future__ import annotations

import sys

import pytest

from memlens.devices import installed_gpus
from memlens.devices.nvml import _catalogue_gpu
from memlens.units import GIB


def test_without_a_card_there_is_a_reason() -> None:
    """Either cards are listed or one sentence says why not; asking never raises."""
    installed = installed_gpus()
    assert bool(installed.cards) != bool(installed.reason)


def test_without_the_library_the_reason_is_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nvidia-ml-py is missing, the reason says what to install."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "memlens[gpu]" in installed_gpus().reason


@pytest.mark.parametrize(
    ("name", "gib", "found"),
    [
        ("NVIDIA GeForce RTX 3060", 12.0, "NVIDIA GeForce RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 15.99, "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("NVIDIA L4", 22.49, "NVIDIA L4"),
    ],
)
def test_the_driver_tells_which_of_several_sizes(name: str, gib: float, found: str) -> None:
    """The driver gives one name to several cards; its memory tells them apart."""
    known = _catalogue_gpu(name, int(gib * GIB))
    assert known is not None
    assert known.name == found


def test_a_card_that_nobody_knows() -> None:
    """A card outside the catalogue is no error."""
    assert _catalogue_gpu("NVIDIA Imaginary 1", 8 * GIB) is None
