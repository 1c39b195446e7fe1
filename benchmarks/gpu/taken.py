"""What measurements of a card say to the catalogue of cards and to the accuracy page.

    PYTHONPATH=src python -m benchmarks.gpu.taken measured.json

prints the lines for src/memlens/devices/catalogue.toml, and the table that `python -m benchmarks.accuracy`
puts on its page for every JSON file in benchmarks/gpu/results/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy.page import percent, spread
from benchmarks.gpu.trainings import TRAININGS, predicted
from memlens.devices import custom_gpu, find_gpu
from memlens.devices.calibrated import Calibration
from memlens.devices.generations import generation_of
from memlens.errors import RecordError, UsageError
from memlens.units import GIB, MIB, format_count

SCHEMA = "memlens.gpu_measurements/1"
RESULTS = Path(__file__).parent / "results"
FIGURES = {"allocated_bytes": "allocated", "reserved_bytes": "reserved", "process_bytes": "process"}
HEAD = """
## Whole trainings on a card

Fifteen trainings of two steps each, run by `python -m benchmarks.gpu` on the card and simulated: what
`max_memory_allocated()`, `max_memory_reserved()` and the driver say of the process.

| card | training | figure | measured MiB | predicted MiB | error |
|---|---|---|---:|---:|---:|
"""


def read(path: Path) -> dict[str, Any]:
    """Measurements that `benchmarks.gpu` wrote."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found.get("schema") != SCHEMA:
        raise RecordError(f"{path} is no file of benchmarks.gpu: its schema is {found.get('schema')!r}")
    return found


def catalogue(found: dict[str, Any]) -> str:
    """Lines of TOML: the card's context, its workspace where that is not the rule's, itself if unknown."""
    card = found["calibration"]
    lines = []
    source = (
        f"measured by benchmarks.gpu on {card['measured']}, torch {card['torch']}, driver {card['driver']}"
    )
    if card["context_bytes"] is not None:
        sizes = ", ".join(f"{size / MIB:g}" for size in card["context_bytes"])
        lines += ["[context_of]", f'"{card["name"]}" = {{ mib = [{sizes}], source = "{source}" }}']
    workspace, capability = card["cublas_workspace_bytes"], tuple(card["compute_capability"])
    rule = generation_of(capability).cublas_workspace_bytes
    if not known(card):
        lines += [
            "", "[[gpu]]",
            f'name = "{card["name"]}"',
            f"nominal_gb = {round(card['memory_bytes'] / GIB)}",
            f"memory_bytes = [{', '.join(2 * [format_count(card['memory_bytes']).replace(',', '_')])}]",
            f"compute_capability = [{capability[0]}, {capability[1]}]",
            f"multiprocessors = {found['multiprocessors']}",
            f'source = "{source}"',
        ]  # fmt: skip
    if workspace != rule:
        lines.append(f"cublas_workspace_bytes = {workspace}  # of {card['name']}; the rule says {rule}")
    return "\n".join(lines) + "\n"


def known(card: dict[str, Any]) -> bool:
    """Whether the catalogue has the card under the driver's name."""
    try:
        return card["name"] in find_gpu(card["name"]).name
    except UsageError:
        return False


def section(files: Sequence[dict[str, Any]]) -> str:
    """The accuracy page's part, predicted anew with today's memlens; nothing without measurements."""
    rows = [row for found in files for row in compared(found)]
    if not rows:
        return ""
    lines = [
        f"| {card} | {name} | {figure} | {theirs / MIB:,.2f} | {ours / MIB:,.2f} | "
        f"{percent(ours / theirs - 1)} |"
        for card, name, figure, theirs, ours in rows
    ]
    said = []
    for figure in FIGURES.values():
        errors = [ours / theirs - 1 for _, _, which, theirs, ours in rows if which == figure]
        said += [f"**{figure}: {spread(errors)}.**"] if errors else []
    left = [
        f"Left out: {row['name']} on {row['gpu']}: {row['skipped']}"
        for found in files
        for row in found["trainings"]
        if "skipped" in row
    ]
    return HEAD + "\n".join([*lines, "", *said, *left]) + "\n"


def compared(found: dict[str, Any]) -> Iterator[tuple[str, str, str, int, int]]:
    """Card, training, figure, measured and predicted bytes, of every figure that was measured."""
    card = Calibration(**found["calibration"])
    gpu = find_gpu(card.name) if known(found["calibration"]) else custom_gpu(card.memory_bytes)
    by_name = {training.name: training for training in TRAININGS}
    for row in found["trainings"]:
        if "measured" in row and row["name"] in by_name:
            ours = predicted(by_name[row["name"]], gpu)
            for key, figure in FIGURES.items():
                if row["measured"][key] is not None:
                    yield card.name, row["name"], figure, row["measured"][key], ours[key]


def results() -> list[dict[str, Any]]:
    """The measurements that are kept here."""
    return [read(path) for path in sorted(RESULTS.glob("*.json"))]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        measured = read(Path(name))
        print(catalogue(measured) + section([measured]))
