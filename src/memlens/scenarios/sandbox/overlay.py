"""Files that a script writes, kept apart: writes land in a scratch folder, reads see them there.

Python's own file functions are replaced by ones that look where a path really leads. What was written or made
by the script is found in the scratch folder under its absolute path; everything else is read where it is.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import Any

from memlens.patching import replaced

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# the originals, for memlens' own use while the script has the others
_stat, _lstat = os.stat, os.lstat
_listdir, _makedirs, _copyfile = os.listdir, os.makedirs, shutil.copyfile
_remove, _rmdir, _rename, _scandir, _rmtree = os.remove, os.rmdir, os.rename, os.scandir, shutil.rmtree


def _lexists(path: Any) -> bool:
    """`os.path.lexists` by the original `lstat`."""
    try:
        _lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _isdir(path: Any) -> bool:
    try:
        return stat.S_ISDIR(_stat(path).st_mode)
    except (OSError, ValueError):
        return False


class Overlay:
    """Where paths lead. `free` are folders that may be written to as they are."""

    def __init__(self, root: str, free: tuple[str, ...]) -> None:
        self.root = os.path.realpath(root)
        self.free = tuple(os.path.realpath(folder) + os.sep for folder in (self.root, *free))
        self.gone: set[str] = set()  # what the script removed, though it is still there
        self.written: set[str] = set()  # what it wrote or made

    def _full(self, path: Any) -> str | None:
        """The absolute path as text; None for descriptors and for what may be written to as it is."""
        if isinstance(path, int) or path is None:
            return None
        full = os.path.abspath(os.fsdecode(path))
        return None if (full + os.sep).startswith(self.free) else full

    def shadow(self, full: str) -> str:
        return self.root + full

    def read(self, path: Any) -> Any:
        """The path to read from."""
        full = self._full(path)
        if full is None:
            return path
        shadow = self.shadow(full)
        if _lexists(shadow):
            return shadow
        if self._is_gone(full):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        return path

    def write(self, path: Any, keep: bool = False) -> Any:
        """The path to write to; with `keep`, what is there already comes along."""
        full = self._full(path)
        if full is None:
            return path
        shadow, folder = self.shadow(full), os.path.dirname(full)
        if not _isdir(self.shadow(folder)):
            if not _isdir(folder):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
            _makedirs(self.shadow(folder))
        if keep and not _lexists(shadow) and _lexists(full) and not _isdir(full) and not self._is_gone(full):
            _copyfile(full, shadow)
        self.gone.discard(full)
        self.written.add(full)
        return shadow

    def _is_gone(self, full: str) -> bool:
        return bool(self.gone) and any(full == gone or full.startswith(gone + os.sep) for gone in self.gone)

    def exists(self, path: Any) -> bool:
        try:
            return _lexists(self.read(path))
        except FileNotFoundError:
            return False

    # what the script calls ------------------------------------------------------------------------------

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wax+"):
            if "x" in mode and self.exists(file):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)
            keep = "a" in mode or "r" in mode
            if "r" in mode:
                self.read(file)
            return _io_open(self.write(file, keep), mode, *args, **kwargs)
        return _io_open(self.read(file), mode, *args, **kwargs)

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            return _os_open(path, flags, mode, dir_fd=dir_fd)
        if flags & _WRITES:
            if not flags & os.O_CREAT:
                self.read(path)
            return _os_open(self.write(path, keep=not flags & os.O_TRUNC), flags, mode)
        return _os_open(self.read(path), flags, mode)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:  # a folder that was opened is where it is
            _mkdir(path, mode, dir_fd=dir_fd)
            return
        if self._full(path) is not None and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))
        _mkdir(self.write(path), mode)

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        """A file of its own goes; one that was there before only seems to."""
        if dir_fd is not None:
            _remove(path, dir_fd=dir_fd)
        else:
            self._take_away(path, _remove)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            _rmdir(path, dir_fd=dir_fd)
        else:
            self._take_away(path, _rmdir)

    def rmtree(self, path: Any, ignore_errors: bool = False, *args: Any, **kwargs: Any) -> None:
        if ignore_errors and not self.exists(path):
            return
        self._take_away(path, _rmtree)

    def _take_away(self, path: Any, real: Callable[[Any], None]) -> None:
        full = self._full(path)
        if full is None:
            real(path)
            return
        _stat(self.read(path), follow_symlinks=False)  # raises as it should where there is nothing
        if _lexists(self.shadow(full)):
            real(self.shadow(full))
        self.written.discard(full)
        if _lexists(full):
            self.gone.add(full)

    def rename(self, src: Any, dst: Any, **_: Any) -> None:
        full = self._full(src)
        if full is None and self._full(dst) is None:
            _rename(src, dst)
            return
        source = self.read(src)
        if (full is not None and source == self.shadow(full)) or full is None:
            _rename(source, self.write(dst))
        else:
            target = self.write(dst)
            (shutil.copytree if _isdir(source) else _copyfile)(source, target)
        if full is not None:
            self.written.discard(full)
            if _lexists(full):
                self.gone.add(full)

    def symlink(self, src: Any, dst: Any, *args: Any, **_: Any) -> None:
        _symlink(self.read(src) if os.path.isabs(os.fsdecode(src)) else src, self.write(dst))

    def listdir(self, path: Any = ".") -> list[Any]:
        full = self._full(path)
        if full is None:
            return _listdir(path)
        here = os.fsdecode(path)
        places = [place for place in (here, self.shadow(full)) if _isdir(place)]
        if not places or self._is_gone(full):
            return _listdir(self.read(path))
        names = {name for place in places for name in _listdir(place)}
        kept = [name for name in sorted(names) if not self._is_gone(os.path.join(full, name))]
        return [os.fsencode(name) for name in kept] if isinstance(path, bytes) else kept

    def scandir(self, path: Any = ".") -> Any:
        full = self._full(path)
        if full is None or not _isdir(self.shadow(full)):
            return _scandir(path)
        return _Entries(self, os.fsdecode(path))


class _Entries:
    """`os.scandir` over both places at once."""

    def __init__(self, overlay: Overlay, folder: str) -> None:
        full = os.path.abspath(folder)
        entries: dict[str, os.DirEntry[str]] = {}
        for place in (full, overlay.shadow(full)):
            if _isdir(place):
                entries |= {entry.name: entry for entry in _scandir(place)}
        self._entries = iter(
            [_Entry(e, folder) for e in entries.values() if not overlay._is_gone(os.path.join(full, e.name))]
        )

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def close(self) -> None:
        """Nothing is held open."""


class _Entry:
    """An entry that says the path by which the script knows it."""

    def __init__(self, entry: os.DirEntry[str], folder: str) -> None:
        self._entry = entry
        self.path = os.path.join(folder, entry.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> str:
        return self.path


_io_open, _os_open, _mkdir, _symlink = io.open, os.open, os.mkdir, os.symlink
# functions whose first argument is a path that they only look at
_READS = "stat lstat access chdir readlink"
# functions that change something about a path that is there
_CHANGES = "chmod utime truncate"


def installed(overlay: Overlay) -> replaced:
    """The script's functions, for a `with`."""
    table: dict[str, Any] = {
        "builtins.open": overlay.open, "io.open": overlay.open, "os.open": overlay.os_open,
        "os.mkdir": overlay.mkdir, "os.remove": overlay.remove, "os.unlink": overlay.remove,
        "os.rmdir": overlay.rmdir, "os.rename": overlay.rename, "os.replace": overlay.rename,
        "os.symlink": overlay.symlink, "os.listdir": overlay.listdir,
        "os.scandir": overlay.scandir, "shutil.rmtree": overlay.rmtree,
    }  # fmt: skip
    table |= {f"os.{name}": _reading(overlay, getattr(os, name)) for name in _READS.split()}
    table |= {f"os.{name}": _changing(overlay, getattr(os, name)) for name in _CHANGES.split()}
    return replaced(table)


def _reading(overlay: Overlay, real: Any) -> Any:
    def function(path: Any, *args: Any, **kwargs: Any) -> Any:
        return real(path if kwargs.get("dir_fd") is not None else overlay.read(path), *args, **kwargs)

    return function


def _changing(overlay: Overlay, real: Any) -> Any:
    def function(path: Any, *args: Any, **kwargs: Any) -> Any:
        overlay.read(path)
        return real(overlay.write(path, keep=True), *args, **kwargs)

    return function
