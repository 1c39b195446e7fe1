"""The house: imports go down only, and only some rooms may enter torch."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "memlens"

FLOOR = {
    "errors": -1, "units": -1,
    "model": 0,
    "allocator": 1, "devices": 1, "records": 1,
    "explanation": 2,
    "simulation": 3, "measurement": 3,
    "scenarios": 4, "advice": 4, "summaries": 4,
    "render": 5,
    "cli": 6, "notebook": 6, "integrations": 6, "compat": 6,
}  # fmt: skip
# floors inside a room, by its folders
FLOOR_WITHIN = {"simulation": {"core": 0, "rules": 1, "dispatch": 2, "torch_api": 3}}
MAY_IMPORT_TORCH = {"simulation", "measurement", "scenarios", "summaries", "advice", "integrations"}
# a room may use a neighbour on its own floor only where this says so
NEIGHBOURS = {
    ("advice", "scenarios"),
    ("summaries", "scenarios"),
    ("cli", "notebook"),
    ("notebook", "compat"),
    ("compat", "integrations"),
}
STDLIB_ONLY = {"model", "allocator", "errors", "units"}
THIRD_PARTY = {
    "click",
    "rich",
    "psutil",
    "msgspec",
    "torch",
    "numpy",
    "matplotlib",
    "IPython",
    "memray",
    "pynvml",
    "plotly",
    "jinja2",
}


def imports(path: Path) -> list[str]:
    """Every module that a file imports, also inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.append(node.module)
    return found


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def broken_rules(path: Path) -> list[str]:
    here, problems = room(path), []
    if here in ("__init__", "__main__"):
        return []
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "memlens" and rest:
            there = rest[0]
            up = FLOOR[there] > FLOOR[here]
            beside = FLOOR[there] == FLOOR[here] >= 0 and there != here and (here, there) not in NEIGHBOURS
            floors = FLOOR_WITHIN.get(here, {}) if there == here else {}
            folder, other = path.relative_to(SOURCE).parts[1:2], rest[1:2]
            within = folder and other and floors.get(other[0], -1) > floors.get(folder[0], 99)
            if up or beside or within:
                problems.append(f"{path.name} in {here} imports {name}, which is not below it")
        elif top == "torch" and here not in MAY_IMPORT_TORCH:
            problems.append(f"{path.name} in {here} imports torch")
        elif top in THIRD_PARTY and here in STDLIB_ONLY:
            problems.append(f"{path.name} in {here} imports {top}; this room is standard library only")
    return problems


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    """No file imports from a floor above its own, nor torch or a library where its room may not."""
    assert broken_rules(path) == []


def test_an_import_upwards_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself fails on a file that breaks each of its rules."""
    (tmp_path / "model").mkdir()
    bad = tmp_path / "model" / "bad.py"
    bad.write_text("import torch\nimport rich\ndef f():\n    from memlens.render import terminal\n")
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    assert len(broken_rules(bad)) == 3


def test_an_import_upwards_inside_a_room_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that imports from the dispatcher is refused; the other way round is fine."""
    for folder, other in (("rules", "dispatch"), ("dispatch", "rules")):
        (tmp_path / "simulation" / folder).mkdir(parents=True)
        file = tmp_path / "simulation" / folder / "file.py"
        file.write_text(f"from memlens.simulation.{other}.mode import DispatchMode\n")
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    assert len(broken_rules(tmp_path / "simulation" / "rules" / "file.py")) == 1
    assert broken_rules(tmp_path / "simulation" / "dispatch" / "file.py") == []
