"""The public names: there, and typed for those who check their code with mypy or an editor."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memlens

USE = Path(__file__).with_name("use.py")


def typed_names(source: str) -> dict[str, str]:
    """Name -> module of the explicit re-exports (`from a import b as b`) under `if TYPE_CHECKING:`."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: str(node.module)
        for node in imports
        for alias in node.names
        if alias.asname == alias.name  # without `as` the name is private to a type checker
    }


def test_a_type_checker_reads_the_names_that_are_there() -> None:
    """The block for type checkers and the table for Python name the same things in the same modules."""
    assert typed_names(inspect.getsource(memlens)) == memlens._PUBLIC


def test_a_forgotten_as_is_found() -> None:
    """The check, broken once on purpose: an import without `as` exports nothing."""
    source = "if TYPE_CHECKING:\n    from a import b as b\n    from a import c\n"
    assert typed_names(source) == {"b": "a"}


@pytest.mark.torch
@pytest.mark.parametrize("name", memlens._PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    """Each name is what its module defines, not a module of the same name."""
    value = getattr(memlens, name)
    assert callable(value)
    assert value.__name__ == name
    assert name in dir(memlens)


def test_no_other_name_is_there() -> None:
    """A slip of the pen is an AttributeError that restates it."""
    with pytest.raises(AttributeError, match="module 'memlens' has no attribute 'perdict'"):
        memlens.perdict  # noqa: B018


def expected_errors(source: str) -> set[tuple[int, str]]:
    """Line and code of every `# error: CODE`."""
    lines = enumerate(source.splitlines(), 1)
    return {(number, code) for number, line in lines for code in re.findall(r"# error: ([\w-]+)$", line)}


@pytest.mark.torch
@pytest.mark.slow
def test_mypy_objects_to_wrong_uses_only(tmp_path: Path) -> None:
    """In a user's own project: errors are exactly the lines that say so, each of the kind it says."""
    pytest.importorskip("mypy")
    shutil.copy(USE, tmp_path)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n"
        "[mypy-torch.*]\nfollow_imports = skip\nfollow_imports_for_stubs = True\n"  # torch takes a minute
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "use.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    errors = re.findall(r"^use\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert {(int(line), code) for line, code in errors} == expected_errors(USE.read_text()), done.stdout


@pytest.mark.torch
def test_what_describes_a_loop_is_the_same_everywhere() -> None:
    """`predict` names every option of a loop; `advise` and `max_batch_size` hand the same ones on."""
    pytest.importorskip("torch")
    from memlens.advice.advise import BatchOptions, largest_batch
    from memlens.scenarios.scenario import ScenarioOptions, make_scenario

    options = ScenarioOptions.__annotations__
    assert {name: parameters(make_scenario)[name] for name in options} == written(options)
    assert {name: parameters(memlens.predict)[name] for name in options} == written(options)
    assert set(parameters(make_scenario)) - set(options) == {"inputs", "return"}
    assert (
        written(BatchOptions.__annotations__).items()
        <= {**written(options), **parameters(largest_batch)}.items()
    )


def parameters(function: Callable[..., object]) -> dict[str, str]:
    return dict(function.__annotations__)


def written(annotations: dict[str, Any]) -> dict[str, str]:
    """The text of annotations, which a TypedDict keeps as references."""
    return {name: value.__forward_arg__ for name, value in annotations.items()}


def pyright_symbols(folder: Path) -> list[dict[str, Any]]:
    """Every symbol of memlens as pyright sees it from elsewhere; basedpyright needs no network to run."""
    command = ["-m", "basedpyright", "--verifytypes", "memlens", "--ignoreexternal", "--outputjson"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *command, "--pythonpath", sys.executable],
        cwd=folder, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    symbols: list[dict[str, Any]] = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    return symbols


@pytest.mark.torch
@pytest.mark.slow
def test_pyright_knows_every_public_type(tmp_path: Path) -> None:
    """No public name has a parameter, a result or a member whose type pyright would have to guess."""
    pytest.importorskip("basedpyright")
    known = {symbol["name"]: symbol["isTypeKnown"] for symbol in pyright_symbols(tmp_path)}
    assert {name for name in memlens._PUBLIC if f"memlens.{name}" not in known} == set()
    assert {name for name in memlens._PUBLIC if not known[f"memlens.{name}"]} == set()
    # most of what lies behind them: the rest are attributes of inner classes without an annotation
    assert sum(known.values()) / len(known) > 0.85
