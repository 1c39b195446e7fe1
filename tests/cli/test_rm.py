"""`memlens rm`: removes records by number or name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.record_folder import FIRST, SECOND, type_in

from memlens.errors import MemlensError

pytestmark = pytest.mark.usefixtures("folder")


def test_rm_means_the_numbers_of_list(folder: Path) -> None:
    """Both numbers are those before anything was removed; a dry run removes nothing."""
    assert type_in("rm", "--dry-run", "0", "-1").output == f"would remove {FIRST}\nwould remove {SECOND}\n"
    assert len(list(folder.iterdir())) == 3
    type_in("rm", "0", "-1", FIRST)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rm", "0", "notes.txt"], "of no format that memlens reads"),
        (["rm", "0", "7"], "there is no record 7"),
    ],
)
def test_a_wrong_call_is_one_error(folder: Path, words: list[str], says: str) -> None:
    """All names are checked before anything is removed."""
    done = type_in(*words)
    assert isinstance(done.exception, MemlensError)
    assert says in str(done.exception)
    assert len(list(folder.iterdir())) == 3
