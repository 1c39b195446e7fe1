"""The records in a directory, as `list`, `plot`, `peak`, `rm` and `clean` number them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from memlens.errors import UsageError
from memlens.records import load

_DEFAULT_NAME = re.compile(r"(?:mprofile|memlens)_(\d{14})(?:_\d+)?\.(?:dat|memlens)\Z")


def default_name(extension: str = ".memlens", now: time.struct_time | None = None) -> str:
    """`memlens_20260131235959.memlens`, after the local time; `mprofile_...dat` as mprof names its own."""
    prefix = "mprofile" if extension == ".dat" else "memlens"
    return f"{prefix}_{time.strftime('%Y%m%d%H%M%S', now or time.localtime())}{extension}"


def free_name(folder: Path = Path(), now: time.struct_time | None = None) -> Path:
    """A default name that no file has: a second run in one second is `memlens_20260131235959_1.memlens`."""
    path = folder / default_name(now=now)
    names = (path, *(path.with_stem(f"{path.stem}_{number}") for number in range(1, 1000)))
    return next((name for name in names if not name.exists()), path)


def records(folder: Path = Path()) -> list[Path]:
    """The records with default names, oldest first; those with other names are not listed."""
    paths = [path for path in folder.iterdir() if _DEFAULT_NAME.match(path.name)]
    return sorted(paths, key=lambda path: (stamp(path), path.name))


def stamp(path: Path) -> str:
    """`20260131235959`, from a default name."""
    match = _DEFAULT_NAME.match(path.name)
    return match[1] if match else time.strftime("%Y%m%d%H%M%S", time.localtime(path.stat().st_mtime))


def when(path: Path) -> str:
    """`23:59:59 31/01/2026`, as mprof writes it."""
    text = stamp(path)
    return f"{text[8:10]}:{text[10:12]}:{text[12:]} {text[6:8]}/{text[4:6]}/{text[:4]}"


def resolve(words: tuple[str, ...] | list[str], folder: Path = Path()) -> list[Path]:
    """Files from names and indices (0 the oldest, -1 the newest); without any, the newest record."""
    paths: list[Path] = []
    for word in words or ["-1"]:
        path = folder / word
        if re.fullmatch(r"-?\d+", word) and not path.exists():
            known = records(folder)
            if not -len(known) <= int(word) < len(known):
                numbers = (
                    f"has {len(known)}, numbers 0 to {len(known) - 1}"
                    if len(known) > 1
                    else ("has one, number 0" if known else "has none")
                )
                raise UsageError(
                    f"there is no record {word}: {folder.resolve()} {numbers}",
                    hint="memlens run PROGRAM makes one; memlens list numbers them",
                )
            paths.append(known[int(word)])
        elif path.is_file():
            paths.append(path)
        elif word.startswith("--"):
            raise UsageError(f"there is no option {word}", hint="the command's --help lists them")
        else:
            raise UsageError(
                f"there is no record {word!r}", hint="memlens list shows those of this directory"
            )
    return paths


def remove(paths: Iterable[Path], dry_run: bool, say: Callable[[str], object]) -> None:
    """Remove records, or say that they would be; nothing is removed if one of them is no record."""
    paths = list(dict.fromkeys(paths))
    for path in paths:
        if not _DEFAULT_NAME.match(path.name):
            load(path)  # raises RecordError: `rm` is for records, not for every file that is named
    for path in paths:
        if not dry_run:
            path.unlink()
        say(f"{'would remove' if dry_run else 'removed'} {path}")
