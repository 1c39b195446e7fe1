"""The result: rows, totals and what other tools would say, as data."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from memlens.answers import Answer
from memlens.model import Assumption
from memlens.summaries.other_tools import Like
from memlens.summaries.rows import CONTRACT, Row, Totals

SCHEMA = "memlens.summary/1"


@dataclass(frozen=True, repr=False)
class Summary(Answer):
    """What `memlens summary` knows. Sums of `rows` are `totals`, whatever the depth they are shown at."""

    target: str
    mode: str
    batch_size: int | None
    inputs: tuple[str, ...]
    rows: tuple[Row, ...]
    totals: Totals
    weight_copies_bytes: int = 0  # copies of weights kept by autocast
    likes: dict[str, Like] = field(default_factory=dict)
    like: str | None = None  # the tool that was asked for
    assumptions: tuple[Assumption, ...] = ()
    elapsed_seconds: float = 0.0
    memlens: str = ""
    torch: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Schema `memlens.summary/1`, ready for json."""
        totals = {name: getattr(self.totals, name) for name in self.totals.__dataclass_fields__}
        return {
            "schema": SCHEMA,
            "target": self.target,
            "mode": self.mode,
            "batch_size": self.batch_size,
            "inputs": list(self.inputs),
            "rows": [row.to_dict() for row in self.rows],
            "totals": totals,
            "like": self.likes[self.like].to_dict() if self.like else None,
            "weight_copies_bytes": self.weight_copies_bytes,
            "assumptions": [assumption.to_dict() for assumption in self.assumptions],
            "elapsed_seconds": self.elapsed_seconds,
            "memlens": self.memlens,
            "torch": self.torch,
        }

    def to_csv(self) -> str:
        """One line a row, all of them, shapes as `1x64x224x224` with spaces between several."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CONTRACT)
        writer.writerows(cells.values() for cells in self.to_rows())
        return text.getvalue()

    def headline(self) -> str:
        """The model, its parameters, and what one step of it holds."""
        totals = self.totals
        return f"{self.target}, {totals.params:,} parameters, {len(self.rows)} layers"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each layer, shapes as `1x64x224x224` with spaces between several."""
        rows = []
        for row in self.rows:
            cells = row.to_dict()
            cells["output_shapes"] = " ".join("x".join(map(str, shape)) for shape in row.output_shapes)
            rows.append({name: cells[name] for name in CONTRACT})
        return rows
