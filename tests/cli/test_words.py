"""What is typed that is not quite right: one error in one dialect, with a way out."""

from __future__ import annotations

import pytest

from memlens.cli.main import COMMANDS, MEANT, main


def typed(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a call."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    shown = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, shown.out, shown.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("diff a b", "memlens: there is no command 'diff'\n  hint: did you mean memlens compare? "),
        ("predikt x", "memlens: there is no command 'predikt'\n  hint: did you mean memlens predict? "),
        ("xyzzy", "memlens: there is no command 'xyzzy'\n  hint: memlens --help lists all"),
        ("compare a", "memlens: missing argument 'B'\n  hint: memlens compare --help"),
        ("gpus --no-such", "memlens: no such option '--no-such'\n  hint: memlens gpus --help"),
        ("plot --width 3", "memlens: invalid value for '--width': 3 is not in the range 40<=x<=500"),
    ],
)
def test_a_wrong_word_is_one_error(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    """click's own errors look as all the others do."""
    code, out, err = typed(*words.split(), capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(error)


def test_help_and_version_as_other_tools_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    """`memlens help run` is `memlens run --help`, and -V is --version."""
    help_of_run = typed("run", "--help", capsys=capsys)
    assert typed("help", "run", capsys=capsys) == help_of_run
    assert typed("help", capsys=capsys)[1].startswith("Usage: memlens [OPTIONS] COMMAND")
    assert typed("-V", capsys=capsys) == typed("--version", capsys=capsys)


def test_nothing_at_all_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Bare `memlens` says what there is."""
    code, out, err = typed(capsys=capsys)
    assert code in (0, 2)
    assert (out or err).startswith("Usage: memlens")


def test_words_that_are_meant_are_no_commands() -> None:
    """A word means one command, and none that exists."""
    words = [word for meant in MEANT.values() for word in meant]
    assert len(words) == len(set(words))
    assert not set(words) & set(COMMANDS)
    assert set(MEANT) <= set(COMMANDS)
