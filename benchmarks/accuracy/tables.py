"""The tables of recorded figures, by name: a new one is a new row here."""

from __future__ import annotations

from benchmarks.accuracy.adapters import QLORA
from benchmarks.accuracy.device_rows import NETWORKS_TABLE, TIMM
from benchmarks.accuracy.flux import FLUX
from benchmarks.accuracy.job import Table
from benchmarks.accuracy.litgpt import LITGPT
from benchmarks.accuracy.measure import OPERATORS
from benchmarks.accuracy.programs import PROGRAMS
from benchmarks.accuracy.segmentation import SEGMENTATION

TABLES: dict[str, Table] = {
    table.name: table
    for table in (PROGRAMS, OPERATORS, QLORA, LITGPT, FLUX, SEGMENTATION, NETWORKS_TABLE, TIMM)
}
