"""`memlens gpus`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from memlens.cli.commands.gpus import command


def run(*arguments: str, columns: int = 80) -> str:
    result = CliRunner().invoke(
        command, list(arguments), env={"COLUMNS": str(columns)}, catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.output


def test_the_table_shows_memory_capability_and_context() -> None:
    """One row holds a card's memory in GiB, capability, context in MiB and whether it was read."""
    row = next(line for line in run("4090").splitlines() if line.startswith("RTX 4090 "))
    assert row.split() == ["RTX", "4090", "23.48", "8.9", "250-800", "read"]


@pytest.mark.parametrize("columns", [80, 200])
def test_no_figure_is_cut_and_no_line_too_long(columns: int) -> None:
    """At 80 and at 200 columns every line fits and nothing ends in an ellipsis."""
    lines = run(columns=columns).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= columns
    assert not any("…" in line for line in lines)


def test_a_wide_terminal_shows_the_sources() -> None:
    """From 140 columns on the table says where each memory figure comes from."""
    assert "openxla/xla" in run("h100", columns=200)
    assert "openxla/xla" not in run("h100", columns=80)


def test_a_filter_keeps_what_holds_every_word() -> None:
    """`memlens gpus 4060 ti` lists the two desktop cards of that name and no other."""
    names = [gpu["name"] for gpu in json.loads(run("4060", "ti", "--json"))["gpus"]]
    assert names == ["NVIDIA GeForce RTX 4060 Ti 8GB", "NVIDIA GeForce RTX 4060 Ti 16GB"]


def test_json_holds_bytes_and_sources() -> None:
    """The JSON gives bytes, the range, the three contexts and the sources."""
    document = json.loads(run("T4", "--json"))
    assert document["schema"] == "memlens.gpus/1"
    (card,) = document["gpus"]
    assert card["memory_bytes"] == 15_634_661_376
    assert card["compute_capability"] == [7, 5]
    assert card["cublas_workspace_bytes"] == 8_519_680
    assert card["context_bytes"]["expected"] == 147_718_144
    assert card["source"]
    assert bool(document["installed"]) != bool(document["installed_reason"])


def test_the_machine_is_mentioned() -> None:
    """Below the table stand the cards of this machine, or why none can be seen."""
    assert "In this machine" in run("T4")


def memlens(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memlens", *arguments], capture_output=True, text=True, check=False
    )


def test_an_unknown_card_is_one_error() -> None:
    """A filter that fits nothing exits with 2 and offers the nearest card, without a traceback."""
    result = memlens("gpus", "4099")
    assert result.returncode == 2
    assert "RTX 4090" in result.stderr
    assert "Traceback" not in result.stderr


def test_torch_is_not_imported() -> None:
    """The catalogue is shown without paying for `import torch`."""
    code = (
        "import sys; from memlens.cli.commands.gpus import command; command([], standalone_mode=False);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
