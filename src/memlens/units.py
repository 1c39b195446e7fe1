"""The only place where bytes become text, and text becomes bytes.

MiB = 2^20 and GiB = 2^30, spelled with the i; MB = 10^6 and GB = 10^9. Inside memlens a size is an
`int` of bytes whose name ends in `_bytes`.

>>> format_bytes(6_696 * MIB)
'6.54 GiB'
>>> parse_bytes("24GiB") == 24 * GIB
True
"""

from __future__ import annotations

import os
import re

from memlens.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1 << 40,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1 << 40,
}
_MOST_BYTES = 1 << 64
_SIZE = re.compile(r"\s*([+-]?\d+(?:[._]\d+)*(?:e\d+)?)\s*([a-zA-Z]*)\s*\Z")


def format_bytes(size: int | float, *, precision: int = 2, sign: bool = False) -> str:
    """`size` bytes in the largest binary unit that leaves a number of at least one.

    >>> format_bytes(1536), format_bytes(-3 * MIB), format_bytes(512, sign=True)
    ('1.50 KiB', '-3.00 MiB', '+512 B')
    """
    prefix = "+" if sign and size > 0 else ""
    magnitude = abs(size)
    for factor, unit in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # a value that would round up to 1024 of this unit's smaller sibling moves up to this unit
        if magnitude >= factor - 0.5 * 10**-precision * factor / 1024:
            return f"{prefix}{size / factor:,.{precision}f} {unit}"
    return f"{prefix}{size:,.0f} B"


def format_mib(size: int | float, *, precision: int = 2, grouped: bool = True) -> str:
    """`size` bytes in MiB whatever its magnitude, for columns that must line up.

    `grouped=False` leaves the separators out, for tables that other programs parse.

    >>> format_mib(3 * GIB), format_mib(3 * GIB, precision=1, grouped=False)
    ('3,072.00 MiB', '3072.0 MiB')
    """
    number = round(size / MIB, precision) + 0.0  # never "-0.0"
    return f"{number:,.{precision}f} MiB" if grouped else f"{number:.{precision}f} MiB"


def format_count(count: int) -> str:
    """A count with separators, for parameters and calls.

    >>> format_count(138357544)
    '138,357,544'
    """
    return f"{count:,}"


def parse_bytes(text: str | int) -> int:
    """Bytes from text as people type it: `24GiB`, `24 GB`, `512MiB`, `24g` (binary), `1073741824`.

    >>> parse_bytes("24 GB"), parse_bytes("1.5GiB"), parse_bytes("512")
    (24000000000, 1610612736, 512)
    """
    if isinstance(text, int):
        return text
    match = _SIZE.match(text)
    unit = match[2].lower() if match else None
    if match is None or unit not in _UNITS:
        raise UsageError(
            f"cannot read {text!r} as an amount of memory",
            hint="write a number and a unit, such as 24GiB, 24GB (= 10^9) or 512MiB",
        )
    size = float(match[1].replace("_", "")) * _UNITS[unit or ""]
    if not 0 <= size < _MOST_BYTES:
        raise UsageError(f"an amount of memory is from 0 to 16 EiB, got {text!r}")
    return int(size)


def path_tail(path: str, parts: int = 2) -> str:
    """The last parts of a path, the same on every machine: `net/train.py:12`.

    >>> path_tail("/home/me/net/train.py:12"), path_tail("C:\\\\net\\\\train.py"), path_tail("/train.py")
    ('net/train.py:12', 'net/train.py', 'train.py')
    """
    return "/".join([part for part in path.replace("\\", "/").split("/") if part][-parts:])


def short_path(path: str, *, from_here: bool = True) -> str:
    """A path as people like to read it: seen from the current folder, else its last three parts.

    Without `from_here` it does not depend on where it is read, as a page that is sent around.

    >>> short_path("/a/b/c/d/train.py:12", from_here=False), short_path("/a/b/train.py", from_here=False)
    ('.../c/d/train.py:12', '/a/b/train.py')
    """
    if from_here and path:
        try:
            relative = os.path.relpath(path)
        except (OSError, ValueError):  # the current folder is gone, or on another drive
            return path
        if not relative.startswith(".."):
            return relative
    long = len([part for part in path.replace("\\", "/").split("/") if part]) > 3
    return f".../{path_tail(path, 3)}" if long else path
