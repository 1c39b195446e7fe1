"""The house: imports go down only, and only some rooms may enter torch."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "memlens"

FLOOR = {
    "errors": -1, "units": -1, "patching": -1, "messages": -1, "answers": -1,
    "model": 0,
    "allocator": 1, "devices": 1, "records": 1,
    "explanation": 2,
    "simulation": 3, "measurement": 3,
    "scenarios": 4, "advice": 4, "summaries": 4,
    "render": 5,
    "cli": 6, "notebook": 6, "integrations": 6, "compat": 6,
}  # fmt: skip
MAY_IMPORT_TORCH = {"simulation", "measurement", "scenarios", "summaries", "advice", "integrations"}
# a room may use a neighbour on its own floor only where this says so
NEIGHBOURS = {
    ("advice", "scenarios"),
    ("summaries", "scenarios"),
    ("cli", "notebook"),
    ("notebook", "compat"),
    ("compat", "integrations"),
}
# a room that is below, and still not to be entered: a renderer decides nothing, so it runs no allocator
CLOSED = {("render", "allocator"), ("cli", "allocator")}
# the floors inside a room; a folder may use those below it, and files that stand in the room itself
INSIDE = {
    "simulation": {"core": 0, "rules": 1, "dispatch": 2, "torch_api": 3},
    "measurement": {"host": 0, "tensors": 0, "notebooks": 0, "lines": 1, "oom": 2, "child": 2, "run": 3},
    "scenarios": {"sandbox": 0, "shims": 0, "script": 1, "command_lines": 2},
    "advice": {"shims": 0, "changes": 1},
}
STDLIB_ONLY = {"model", "allocator", "errors", "units", "patching", "messages", "answers"}
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
    "jinja2",
    "nbformat",
    "traitlets",
}


def imports(path: Path) -> list[str]:
    """Every module that a file imports, also inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def folder(path: Path) -> str:
    """The folder inside its room that a file stands in; empty for one that stands in the room itself."""
    parts = path.relative_to(SOURCE).parts
    return parts[1] if len(parts) > 2 else ""


def is_above(here: str, there: str) -> bool:
    """Whether a room may not use another: it is above, or beside without permission, or closed."""
    if FLOOR[there] == FLOOR[here] >= 0 and there != here:
        return (here, there) not in NEIGHBOURS
    return FLOOR[there] > FLOOR[here] or (here, there) in CLOSED


def broken_rules(path: Path) -> list[str]:
    here, problems = room(path), []
    if here in ("__init__", "__main__"):
        return []
    floors, mine = INSIDE.get(here, {}), folder(path)
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "memlens" and rest and rest[0] in FLOOR:
            if is_above(here, rest[0]):
                problems.append(f"{path.name} in {here} imports {name}, which is not below it")
            other = rest[1] if rest[0] == here and len(rest) > 1 else ""
            if mine in floors and other in floors and other != mine and floors[other] >= floors[mine]:
                problems.append(f"{path.name} in {here}/{mine} imports {name}, which is not below it")
        elif top == "torch" and here not in MAY_IMPORT_TORCH:
            problems.append(f"{path.name} in {here} imports torch")
        elif top in THIRD_PARTY and here in STDLIB_ONLY:
            problems.append(f"{path.name} in {here} imports {top}; this room is standard library only")
    return problems


def in_circles(imported: dict[str, set[str]]) -> set[str]:
    """Modules that lead back to themselves; also for types, and inside functions."""
    left = dict(imported)
    while True:  # take away what nothing of the rest is needed for
        free = [name for name, needs in left.items() if not needs & left.keys()]
        if not free:
            break
        for name in free:
            del left[name]
    found = set()
    for name in left:  # what is left leads into a circle: keep what comes back to itself
        reached, todo = set[str](), [name]
        while todo:
            for needed in left.get(todo.pop(), set()) - reached:
                reached.add(needed)
                todo.append(needed)
        if name in reached:
            found.add(name)
    return found


def import_graph() -> dict[str, set[str]]:
    modules = {
        "memlens." + ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py"  # packages only gather what is theirs
    }
    return {name: set(imports(path)) & modules.keys() - {name} for name, path in modules.items()}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    """No file imports from a floor above its own, nor torch or a library where its room may not."""
    assert broken_rules(path) == []


CHILD = SOURCE / "measurement" / "child"


def imported_at_once(text: str) -> set[str]:
    """The libraries that a file imports when it is loaded, not when a function of it is called."""
    tree = ast.parse(text)
    inside = {
        id(part)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for part in ast.walk(function)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", sorted(CHILD.glob("*.py")), ids=lambda path: path.name)
def test_the_users_process_needs_the_standard_library_only(path: Path) -> None:
    """What `memlens run` loads into a program by its path: that interpreter need not have memlens."""
    assert imported_at_once(path.read_text()) <= set(sys.stdlib_module_names)


def test_a_library_in_the_users_process_is_found() -> None:
    """The check itself: at the top, under an `if`, in a class; what a function imports comes later."""
    text = (
        "import os\nif os:\n    import psutil\n"
        "class A:\n    import torch\n    def f(self):\n        import rich\n"
    )
    assert imported_at_once(text) - set(sys.stdlib_module_names) == {"psutil", "torch"}


def test_there_is_no_circle() -> None:
    """No module leads back to itself, not even for the sake of a type."""
    assert in_circles(import_graph()) == set()


def test_a_circle_is_found() -> None:
    """The check itself: two that need each other, a third that needs both, a fourth that is needed."""
    graph = {"a": {"b", "d"}, "b": {"a"}, "c": {"a", "b"}, "d": set[str]()}
    assert in_circles(graph) == {"a", "b"}


def test_no_folder_is_flat_and_no_file_is_long() -> None:
    """At most 20 files in a folder and 350 lines in a file: what is more wants a room of its own."""
    files = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
    crowded = {
        str(folder) for folder, number in Counter(path.parent for path in files).items() if number > 20
    }
    long = {str(path) for path in files if len(path.read_text().splitlines()) > 350}
    assert (crowded, long) == (set(), set())


def test_no_local_is_called_found() -> None:
    """A name says what it holds: that something was found, every name of a result could say."""
    places = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id == "found"
    ]
    assert places == []


def test_hardly_any_function_is_long() -> None:
    """At most 0.2 % of all functions have more than 60 lines."""
    functions = [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(SOURCE)}:{node.name}")
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [name for lines, name in functions if lines > 60]
    assert len(long) <= 0.002 * len(functions), long


def test_an_import_upwards_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself fails on a file that breaks each of its rules."""
    texts = {
        "model/bad.py": "import torch\nimport rich\ndef f():\n    import memlens.render.terminal\n",
        "render/bad.py": "import memlens.allocator.blocks\n",
        "simulation/core/bad.py": "import memlens.simulation.rules.linear.matmul\n",
    }
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    found = {}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
        found[name] = len(broken_rules(tmp_path / name))
    assert found == {"model/bad.py": 3, "render/bad.py": 1, "simulation/core/bad.py": 1}
