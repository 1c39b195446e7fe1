"""What README, pages and `--help` tell people to type is typed here, in a folder with the files they name."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner
from tests.support.desk import lay_out
from tests.support.pages import REPOSITORY, Block, blocks, commands, pages

from memlens.cli.main import COMMANDS, cli

NOT_TYPED = {
    "make": "makes an environment; .ci/run does it",
    "pip": "installs; .ci/run does it",
    "calibrate": "needs a card: tests/cli/test_calibrate.py",
    "attach": "needs a process of yours: tests/cli/test_attach.py",
}
LIBRARIES = {
    "timm:": "timm",
    "torchvision:": "torchvision",
    "hf:": "transformers",
    "accelerate": "accelerate",
    "examples/scripts/hf": "transformers",
}
WITH_TORCH = {"predict", "summary", "advise"}
# what each command says when it did what it is for
SAYS = {
    "predict": r"^(Fits|Does not fit|May not fit|Needs) |^wrote |\"schema\"",
    "advise": r"^(Fits|Does not fit|May not fit|Needs) |batch",
    "summary": r"[Pp]aram|^wrote ",
    "snapshot": r"^peak |^wrote |\"schema\"",
    "report": r"^wrote ",
    "compare": r"^in all|^at the peak|^wrote |\"schema\"",
    "gpus": r"A100|4060",
    "run": r"exit code 0|\"schema\"",
    "plot": r"MiB|^wrote ",
    "peak": r"MiB",
    "list": r"^1 memlens_",
    "rm": r"memlens_",
    "clean": r"mprofile_",
}


class Page(NamedTuple):
    """One block of commands that are typed one after the other in one folder."""

    name: str
    calls: list[list[str]]


def blocks_of_help() -> list[Page]:
    """The examples at the end of every command's `--help`."""
    found = [Page("memlens --help", commands(Block("", cli.help or "", 0)))]
    for name, (module, _) in COMMANDS.items():
        command: click.Command = importlib.import_module(f"memlens.cli.commands.{module}").command
        text = "\n".join(line.strip() for line in f"{command.help}\n{command.epilog or ''}".splitlines())
        found.append(Page(f"memlens {name} --help", commands(Block("", text, 0))))
    return found


def blocks_of_pages() -> list[Page]:
    return [
        Page(f"{page.relative_to(REPOSITORY)}:{block.line}", commands(block))
        for page in pages()
        for block in blocks(page.read_text())
        if commands(block)
    ]


def typed(calls: list[list[str]]) -> list[list[str]]:
    return [call for call in calls if not NOT_TYPED.keys() & {call[0], *call[1:2]}]


def all_pages() -> list[object]:
    """Each block once, those that need torch marked; what was typed on a page before is left out."""
    seen: set[str] = set()
    found = []
    for name, calls in [*blocks_of_pages(), *blocks_of_help()]:
        alone = name.endswith("--help")  # lines of a page may need the lines above them; help's do not
        new = [call for call in typed(calls) if not (alone and shlex.join(call) in seen)]
        seen |= {shlex.join(call) for call in new}
        marks = [pytest.mark.torch] if any(call[1] in WITH_TORCH for call in new) else []
        if new:
            found.append(pytest.param(new, marks=marks, id=name))
    return found


def type_in(folder: Path, words: list[str]) -> tuple[int, str]:
    """The exit code and all output of a command; `memlens run` really in a process of its own."""
    lay_out(folder, words)
    if words[1] == "run":
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, text=True, timeout=120, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PATH": path},
        )  # fmt: skip
        return done.returncode, done.stdout
    result = CliRunner().invoke(cli, words[1:], standalone_mode=False, env={"COLUMNS": "100"})
    if result.exception:
        raise result.exception
    return result.return_value or 0, result.output


def skip_without(words: list[str]) -> None:
    if words[1] in WITH_TORCH:
        pytest.importorskip("torch")
    for start, library in LIBRARIES.items():
        if any(word.startswith(start) for word in words):
            pytest.importorskip(library)
    if any(word.endswith(".ipynb") for word in words):
        pytest.importorskip("nbformat")
        pytest.importorskip("IPython")
    if words[1] == "plot" and {"-o", "--output"} & set(words):
        pytest.importorskip("matplotlib")
    if "make" in words and shutil.which("make") is None:
        pytest.skip("there is no make here")


@pytest.mark.parametrize("calls", all_pages())
def test_what_the_documentation_says_works(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line ends well (or with a prediction's 1: it does not fit) and says what its command is for."""
    monkeypatch.chdir(tmp_path)
    for words in calls:
        skip_without(words)
        code, output = type_in(tmp_path, words)
        assert code in ((0, 1) if words[1] in ("predict", "advise") else (0,)), (shlex.join(words), output)
        assert re.search(SAYS[words[1]], output, re.MULTILINE), (shlex.join(words), output)
        assert "Traceback" not in output


def test_every_command_has_a_line_to_copy() -> None:
    """`--help` of every command shows at least one line that can be typed, and so does its page."""
    help_pages = {page.name: page.calls for page in blocks_of_help()}
    assert [name for name in COMMANDS if not help_pages[f"memlens {name} --help"]] == []
    on_pages = {call[1] for page in blocks_of_pages() for call in page.calls if call[0] == "memlens"}
    assert set(COMMANDS) - on_pages == set()


def test_every_command_has_a_pattern_of_its_answer() -> None:
    """What a command prints when it worked is in SAYS, unless it cannot be typed here."""
    assert set(COMMANDS) - set(SAYS) - set(NOT_TYPED) == set()


def test_every_command_has_tests_under_its_name() -> None:
    """Module, page and tests of a command have one stem: a newcomer looks there first."""
    tests = {path.stem.removeprefix("test_") for path in (REPOSITORY / "tests" / "cli").glob("test_*.py")}
    assert set(COMMANDS) - tests == set()
    assert {name: module for name, (module, _) in COMMANDS.items() if module != name} == {}


@pytest.mark.torch
def test_the_readme_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's figures of ResNet-50 on an RTX 4090 are the program's, line by line."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    call, shown = None, ""
    for block in blocks((REPOSITORY / "README.md").read_text()):
        if call is not None:
            shown = block.text
            break
        call = next((words for words in typed(commands(block)) if words[1] == "predict"), None)
    assert call is not None
    output = type_in(tmp_path, call)[1]
    lines = [bare(line) for line in shown.splitlines() if line.strip() and line.strip() != "..."]
    assert len(lines) >= 5
    assert [line for line in lines if line not in set(map(bare, output.splitlines()))] == []


def bare(line: str) -> str:
    """Without bars, whose length is the terminal's, and with single blanks."""
    return " ".join(re.sub("[█▏▎▍▌▋▊▉]+", "", line).split())


def test_a_wrong_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check, broken once on purpose: an option and a file that do not exist."""
    monkeypatch.chdir(tmp_path)
    page = "```sh\nmemlens list --colour\nmemlens peak never.txt\n```\n"
    wrong_option, wrong_file = commands(blocks(page)[0])
    with pytest.raises(click.NoSuchOption):
        type_in(tmp_path, wrong_option)
    with pytest.raises(Exception, match=r"never\.txt"):
        type_in(tmp_path, wrong_file)
