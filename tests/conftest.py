"""What every test may use."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
# whoever runs the tests may have calibrated a card: the tests pin the catalogue's figures
os.environ["MEMLENS_CONFIG_DIR"] = os.devnull


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once how many tests were skipped because the recorded truths are not here."""
    skipped = terminalreporter.getreports("skipped")
    count = sum(  # a file that is skipped as a whole has no keywords
        "shared" in getattr(report, "keywords", ()) and "recorded truths" in str(report.longrepr)
        for report in skipped
    )
    if count:
        terminalreporter.write_line(
            f"{count} tests compare with recorded truths, which are not here; $MEMLENS_SHARED says where",
            yellow=True,
        )


@pytest.fixture(scope="session")
def shared() -> Path:
    """The recorded truths beside the checkout, or where $MEMLENS_SHARED says; skips without."""
    folder = Path(os.environ.get("MEMLENS_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "truth").is_dir():
        pytest.skip(f"no recorded truths at {folder}")
    return folder


@pytest.fixture(scope="session", autouse=True)
def same_memlens_in_subprocesses() -> None:
    """Tests start programs in other directories: a relative PYTHONPATH would lead nowhere there."""
    import memlens

    source = str(Path(memlens.__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))


@pytest.fixture
def own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this test's models and tensors count, not what earlier tests left alive in the process."""
    from torch import Tensor, nn

    from memlens.measurement.tensors.census import Census

    gc.collect()
    older = {id(o): o for o in gc.get_objects() if issubclass(type(o), (nn.Module, Tensor))}
    for name in ("modules", "tensors"):
        every = getattr(Census, name)
        monkeypatch.setattr(
            Census, name, lambda self, every=every: [o for o in every(self) if id(o) not in older]
        )
