"""The recorded figures: where they lie, and one row of the operators' table."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

# vocabulary of the models that rows name instead of numbers
VOCABULARY = {
    "llama_2_7b": 32_000,
    "llama_3_8b": 128_256,
    "qwen2.5_7b": 152_064,
    "qwen2.5_14b": 152_064,
    "qwen2.5_72b": 152_064,
    "deepseek_v2_lite": 102_400,
}


@dataclass(frozen=True)
class Row:
    """One measured peak: an operator, its sizes, and the card."""

    number: int
    kernel: str
    provider: str
    mode: str
    sizes: dict[str, Any]
    peak_mib: float
    gpu: str
    date: str

    def size(self, *names: str, default: Any = None) -> Any:
        """The first of these sizes that the row states."""
        for name in names:
            if self.sizes.get(name) is not None:
                return self.sizes[name]
        if default is None:
            raise KeyError(f"row {self.number} ({self.kernel}) has none of {', '.join(names)}")
        return default

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, str(self.size("dtype", default="torch.float32")).removeprefix("torch."))

    @property
    def tokens(self) -> int:
        """Rows of the matrix that a loss or a norm works on."""
        if "BT" in self.sizes:
            return int(self.sizes["BT"])
        if "model_config" in self.sizes:
            return int(self.size("bsz") * self.size("seq_len"))
        return int(self.size("B", "bsz") * self.size("T"))

    @property
    def vocabulary(self) -> int:
        named = self.sizes.get("model_config")
        return VOCABULARY[named] if named else int(self.size("V", "vocab_size"))


def operator_rows(truth: Path) -> list[Row]:
    """Every row of operators_liger.csv."""
    rows = []
    with (truth / "operators_liger.csv").open(newline="") as file:
        for number, raw in enumerate(csv.DictReader(file), 2):
            value = raw["x_value"]
            sizes = json.loads(raw["config"]) | {raw["x_name"]: int(value) if value.isdigit() else value}
            rows.append(
                Row(
                    number,
                    raw["kernel"],
                    raw["provider"],
                    raw["mode"],
                    sizes,
                    float(raw["allocated_peak_mib"]),
                    raw["gpu"],
                    raw["date"],
                )
            )
    return rows
