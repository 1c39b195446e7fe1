"""What is typed after `memlens run`, and what is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from memlens.errors import UsageError
from memlens.measurement.run.programs import ENTRY, parse, shell_code


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with a script under two names."""
    for name in ("train.py", "tool"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)


HERE = sys.executable
CASES = {
    "train.py --epochs 3": ([HERE], ["train.py", "--epochs", "3"]),
    "-m pkg.mod --lines": ([HERE], ["-m", "pkg.mod", "--lines"]),
    "python3 train.py": (["python3"], ["train.py"]),
    "python3 -O -W ignore -X dev train.py -i": (
        ["python3", "-O", "-W", "ignore", "-X", "dev"],
        ["train.py", "-i"],
    ),
    "python3 -m pkg.mod": (["python3"], ["-m", "pkg.mod"]),
    "python3 -c pass": ([], []),
    "python3 -i train.py": ([], []),
    "python3 --version": ([], []),
    "python3": ([], []),
    "sh train.py": ([], []),
    "ipython train.py": ([], []),
}


@pytest.mark.parametrize("typed", CASES)
def test_what_is_python_and_what_is_not(typed: str) -> None:
    """A script or module in whichever interpreter can be helped from inside; anything else is a command."""
    program = parse(typed.split())
    assert (list(program.interpreter), list(program.target)) == CASES[typed]


def test_any_name_is_a_script_or_module_if_we_say_so() -> None:
    """With --python, a file is a script and anything else a module."""
    assert parse(["tool", "x"], python=True).target == ("tool", "x")
    assert parse(["pkg.mod"], python=True).target == ("-m", "pkg.mod")


def test_a_command_is_started_as_it_is() -> None:
    """Without options of ours, what was typed is what is started; with them, entry.py comes before it."""
    assert parse(["sh", "-c", "x"]).argv({"interval": 1}) == ["sh", "-c", "x"]
    assert parse(["train.py", "x"]).argv(None) == [HERE, "train.py", "x"]
    assert parse(["train.py", "x"]).argv({"interval": 1, "live": 1}) == [
        HERE, ENTRY, "interval=1\nlive=1", "train.py", "x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("", "no program was named"),
        ("-m", "-m needs the name of a module"),
        ("--wrong x", "no option '--wrong'"),
        ("gone.py", "no script 'gone.py'"),
        ("gone", "'gone' was not found"),
        ("./tool", "'./tool' is not executable"),
        ("/no/python3 train.py", "'/no/python3' was not found"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_starts(typed: str, says: str) -> None:
    """A missing or unusable program is one error that names it."""
    if typed == "./tool" and os.access("tool", os.X_OK):
        pytest.skip("everything is executable here")
    with pytest.raises(UsageError, match=says):
        parse(typed.split())


@pytest.mark.parametrize(("returned", "code"), [(0, 0), (3, 3), (255, 255), (-2, 130), (-9, 137)])
def test_codes_are_a_shells(returned: int, code: int) -> None:
    """A signal n is 128 + n."""
    assert shell_code(returned) == code
