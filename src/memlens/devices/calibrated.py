"""What `memlens calibrate` measured on this user's own cards, or was told of them, kept in a file.

It lies in the configuration directory and is JSON, schema memlens.calibration/1: a card's name (as the driver
gives it) to its figures. They are preferred over the catalogue's, and every prediction says so.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memlens.devices.gpu import Context, Gpu
from memlens.errors import RecordError

SCHEMA = "memlens.calibration/1"
VARIABLE = "MEMLENS_CONFIG_DIR"


@dataclass(frozen=True, slots=True)
class Calibration:
    """One card's own figures; None where the driver does not report it.

    `context_bytes` is what the process holds outside PyTorch's allocator: after the first allocation, after a
    training step, after steps of every kind of layer. `reading` says what was read, where nothing was
    measured here (reading.py); `plain_context_bytes` is then the range of programs without cuDNN.
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    cublas_workspace_bytes: int
    context_bytes: tuple[int, int, int] | None
    measured: str  # date
    torch: str = ""
    driver: str = ""
    reason: str = ""  # why there is no context
    reading: str = ""
    plain_context_bytes: tuple[int, int, int] | None = None

    def apply(self, gpu: Gpu) -> Gpu:
        """The catalogue's card with these figures in place of its own."""
        context = gpu.context
        if self.context_bytes is not None:
            how = f"read on this card on {self.measured}" + (f" ({self.reading})" if self.reading else "")
            plain = self.plain_context_bytes or self.context_bytes
            context = Context(self.context_bytes, plain, how, how)
        if self.reading:
            return replace(gpu, context=context)
        source = f"as `memlens calibrate` measured it on {self.measured} (torch {self.torch}"
        source += f", driver {self.driver})" if self.driver else ")"
        return replace(
            gpu,
            memory_bytes=self.memory_bytes,
            cublas_workspace_bytes=self.cublas_workspace_bytes,
            context=context,
            verified=True,
            note=f"{gpu.note}; {source}" if gpu.note else source,
        )


def config_dir() -> Path:
    """The folder of a user's settings on this system; $MEMLENS_CONFIG_DIR comes first."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home())) / "memlens"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "memlens"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "memlens"


def calibration_file() -> Path:
    return config_dir() / "calibration.json"


def load_calibrations() -> dict[str, Calibration]:
    """Every calibrated card by its name; nothing where none was.

    Raises RecordError for a file that cannot be understood: figures that were measured are not passed over.
    """
    path = calibration_file()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}")
        return {name: _read(entry) for name, entry in data["cards"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path} is no calibration that memlens wrote: {error}",
            hint="remove it, and run `memlens calibrate` again",
        ) from error


def _read(entry: dict[str, Any]) -> Calibration:
    contexts = {name: entry.get(name) for name in ("context_bytes", "plain_context_bytes")}
    figures = [entry["memory_bytes"], entry["cublas_workspace_bytes"]]
    figures += [size for sizes in contexts.values() for size in sizes or ()]
    if not all(isinstance(figure, int) and figure >= 0 for figure in figures):
        raise ValueError(f"{entry['name']} has a size that is no number of bytes")
    major, minor = entry["compute_capability"]
    return Calibration(
        **{
            **entry,
            "compute_capability": (major, minor),
            **{name: _three(sizes) if sizes else None for name, sizes in contexts.items()},
        }
    )


def _three(sizes: list[int]) -> tuple[int, int, int]:
    low, expected, high = sizes
    return low, expected, high


def save_calibration(calibration: Calibration) -> Path:
    """Save a card's figures, and keep those of other cards; returns the file."""
    cards = {**load_calibrations(), calibration.name: calibration}
    path = calibration_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"schema": SCHEMA, "cards": {name: asdict(card) for name, card in cards.items()}}, indent=2
    )
    partial = path.with_suffix(".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)  # whole or not at all
    return path


def apply_calibration(gpu: Gpu) -> Gpu:
    """The card with its own figures where it was calibrated, else as it is."""
    for card in load_calibrations().values():
        same_size = abs(card.memory_bytes - gpu.memory_bytes) <= gpu.memory_bytes // 20
        if (card.name == gpu.name or gpu.name.startswith(f"{card.name} ")) and same_size:
            return card.apply(gpu)
    return gpu
