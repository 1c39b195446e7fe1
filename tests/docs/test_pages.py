"""The pages agree with the program: options, links, length, and no path of somebody's machine."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest
from tests.support.pages import REPOSITORY, blocks, commands, links, options, pages, spans

from memlens.cli.main import COMMANDS

COMMAND_PAGES = REPOSITORY / "docs" / "commands"
# options that a page names although they are not its command's
FOREIGN = {
    "gpus": {"--gpu", "--memory"},  # of every command that takes a card
    "predict": {"--epochs", "--lr", "-u", "-W"},  # of the training script and of Python in the examples
    "run": {"--epochs", "-O", "-j"},  # of the script, of Python and of make in the examples
}

# where memlens's own options have ended: what follows is the program's
PROGRAM_BEGINS = {"--", "python", "torchrun", "accelerate"}


def command(name: str) -> click.Command:
    found: click.Command = importlib.import_module(f"memlens.cli.commands.{COMMANDS[name][0]}").command
    return found


def own_options(name: str) -> set[str]:
    """Every spelling of every option of a command, `--help` excepted."""
    given = (p for p in command(name).params if isinstance(p, click.Option))
    return {spelling for option in given for spelling in (*option.opts, *option.secondary_opts)}


def unknown_options(text: str, own: set[str]) -> list[str]:
    """`NAME: OPTION` for what a `memlens NAME` in the text does not have, and for what is not in `own`."""
    problems = []
    calls = [words for words in map(words_of, spans(text)) if words[:1] == ["memlens"] and len(words) > 1]
    for block in blocks(text):
        calls += [words for words in commands(block) if words[0] == "memlens"]
    for _, name, *words in calls:
        end = next((place for place, word in enumerate(words) if word in PROGRAM_BEGINS), None)
        words = words[:end]
        if name == "run":  # what follows the program is the program's
            continue
        have = own_options(name) | {"--help", "-h"} if name in COMMANDS else {"--help", "--version"}
        problems += [f"memlens {name}: {word}" for word in sorted(options(f"`{shlex.join(words)}`") - have)]
    bare = [span for span in spans(text) if span.startswith("-")]
    return problems + sorted(option for span in bare for option in options(f"`{span}`") - own)


def words_of(span: str) -> list[str]:
    try:
        return shlex.split(span)
    except ValueError:
        return []


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_on_its_page(name: str) -> None:
    """Every command has a page, and every option of it stands there, long and short."""
    page = COMMAND_PAGES / f"{name}.md"
    assert page.is_file(), f"{name} has no docs/commands/{name}.md"
    assert own_options(name) - options(page.read_text()) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_names_only_options_that_exist(name: str) -> None:
    """A page of a command promises nothing that the command does not have."""
    own = own_options(name) | FOREIGN.get(name, set()) | {"--help"}
    assert unknown_options((COMMAND_PAGES / f"{name}.md").read_text(), own) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_other_pages_name_only_options_that_exist(page: Path) -> None:
    """README, guides and explanations name options of the commands they call; magics have their own."""
    every = set.union(*map(own_options, COMMANDS), {"--help", *MAGIC_OPTIONS})
    assert unknown_options(page.read_text(), every) == []


MAGIC_OPTIONS = {"--classic", "-R", "-r", "-p", "-c", "-f", "-i", "-t", "-q", "-o", "-T", "-g", "--gpu"}


def test_no_page_is_left_of_a_command_that_is_gone() -> None:
    """docs/commands has one page a command and no other."""
    assert {page.stem for page in COMMAND_PAGES.glob("*.md")} == set(COMMANDS)


@pytest.mark.parametrize(
    "page",
    [*pages(), REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "changelog.d").glob("*.md"))],
    ids=lambda page: str(page.relative_to(REPOSITORY)),
)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link is a file or folder of the repository."""
    assert [link for link in links(page.read_text()) if not (page.parent / link).exists()] == []


FOR_THOSE_WHO_CHANGE_IT = [REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "docs" / "architecture.md"]


def missing_files(text: str) -> list[str]:
    """The files that a text names in backticks and that are neither in the package nor in the repository."""
    named = (span for span in spans(text) if re.fullmatch(r"[\w./-]*(/|\.(py|toml|js|css))", span))
    roots = [REPOSITORY, REPOSITORY / "src" / "memlens"]
    return [name for name in named if "/" in name and not any((root / name).exists() for root in roots)]


def missing_rooms(text: str) -> set[str]:
    """Rooms that the picture of CONTRIBUTING lacks, and those in it that the package lacks."""
    picture = next(block.text for block in blocks(text) if "model/" in block.text)
    package = REPOSITORY / "src" / "memlens"
    rooms = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    files = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    return set(re.findall(r"\b(\w+)/", picture)) ^ rooms | set(re.findall(r"\w+\.py", picture)) ^ files


@pytest.mark.parametrize("page", FOR_THOSE_WHO_CHANGE_IT, ids=lambda page: page.name)
def test_the_files_that_are_named_exist(page: Path) -> None:
    """A file that is moved is moved in the pages about the code, too; NAME and SUBJECT are the reader's."""
    invented = re.compile("NAME|SUBJECT|FORMAT")
    assert [name for name in missing_files(page.read_text()) if not invented.search(name)] == []


def test_the_picture_has_every_room() -> None:
    """Each folder of the package, and each file beside them, is on a floor."""
    assert missing_rooms((REPOSITORY / "CONTRIBUTING.md").read_text()) == set()


def test_every_page_is_reached_from_the_index() -> None:
    """docs/index.md lists every page, so that none is found by luck."""
    index = REPOSITORY / "docs" / "index.md"
    listed = {(index.parent / link).resolve() for link in links(index.read_text())}
    assert {page for page in pages() if page.parent != REPOSITORY} - listed - {index} == set()


def test_the_readme_is_read_in_three_minutes() -> None:
    """400 to 600 words: enough to begin, short enough to be read."""
    assert 400 <= len((REPOSITORY / "README.md").read_text().split()) <= 600


def test_changelog_fragments_say_their_kind() -> None:
    """NAME.KIND.md, as changelog.d/README.md lists the kinds; each is a sentence or two."""
    fragments = [path for path in (REPOSITORY / "changelog.d").glob("*.md") if path.name != "README.md"]
    kinds = {"added", "changed", "fixed", "removed"}
    assert [
        path.name for path in fragments if path.name.split(".")[1:-1] not in [[kind] for kind in kinds]
    ] == []
    assert [path.name for path in fragments if not 5 <= len(path.read_text().split()) <= 80] == []


def machine() -> str:
    """The folder above this checkout that nobody else has: `/data/`, `/home/ann/`."""
    parts = REPOSITORY.parts
    shared = parts[1] in ("home", "tmp", "Users", "opt", "usr", "var", "root", "mnt", "srv", "builds")
    return "/".join(["", *parts[1 : 3 if shared else 2], ""])


def naming(folder: Path, what: str) -> list[str]:
    texts = (".py", ".md", ".toml", ".yml", ".json", ".txt", ".ipynb")
    files = [path for name in ("src", "tests", "docs", "examples", "benchmarks", "changelog.d", "")
             for path in ((folder / name).rglob("*") if name else folder.glob("*"))
             if path.suffix in texts or path.name in ("Makefile", "run")]  # fmt: skip
    return [str(path) for path in files if path.is_file() and what in path.read_text(errors="replace")]


@pytest.mark.skipif(len(REPOSITORY.parts) < 3, reason="the checkout lies at the root")
def test_no_file_names_a_path_of_this_machine() -> None:
    """Nothing in the repository knows where it was written."""
    assert naming(REPOSITORY, machine()) == []


def test_the_checks_fail_on_a_bad_page(tmp_path: Path) -> None:
    """Each check, broken once on purpose: an unknown option, in a block and in prose, a dead link, a path."""
    bad = "Use `--fast` or `memlens gpus --slow`.\n```sh\nmemlens list --colour red\n```\n[gone](gone.md)\n"
    assert unknown_options(bad, own_options("gpus")) == [
        "memlens gpus: --slow",
        "memlens list: --colour",
        "--fast",
    ]
    assert links(bad) == ["gone.md"]
    assert missing_files("`model/trace.py`, `model/trance.py` and `cellar/`") == [
        "model/trance.py",
        "cellar/",
    ]
    assert missing_rooms("```\nmodel/ attic/\n```\n") >= {"attic", "records", "units.py"}
    (tmp_path / "note.md").write_text(f"see {machine()}somewhere")
    assert naming(tmp_path, machine()) == [str(tmp_path / "note.md")]
