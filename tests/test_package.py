"""What is installed: one version, and the marker that makes the types count."""

from __future__ import annotations

import tomllib
from importlib.metadata import metadata
from importlib.resources import files
from pathlib import Path

import memlens

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_the_version_is_written_in_one_place() -> None:
    """The build reads `__version__`; what pip shows is the same."""
    settings = tomllib.loads(PYPROJECT.read_text())
    assert "version" not in settings["project"]
    assert settings["tool"]["hatch"]["version"]["path"] == "src/memlens/__init__.py"
    assert metadata("memlens")["Version"] == memlens.__version__


def test_the_types_are_installed() -> None:
    """Without `py.typed` in the package, type checkers would take every name for Any."""
    assert files("memlens").joinpath("py.typed").is_file()
