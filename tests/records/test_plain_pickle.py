"""Pickles of plain data are read; whatever else a pickle may be is refused before anything happens."""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from memlens.errors import RecordError
from memlens.records.plain_pickle import loads, read

RAN: list[str] = []


def run(word: str) -> str:
    """What a hostile pickle would call."""
    RAN.append(word)
    return word


class Call:
    """Pickles as a call of `run`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return run, ("reduce",)


class Slots:
    """Pickles by NEWOBJ and BUILD."""

    def __init__(self) -> None:
        self.word = "state"

    def __setstate__(self, state: dict[str, Any]) -> None:
        RAN.append("setstate")


PROTO = b"\x80\x04"
GLOBAL = b"ctest_plain_pickle\nrun\n"
HOSTILE: dict[str, bytes] = {
    **{f"reduce, protocol {n}": pickle.dumps(Call(), protocol=n) for n in range(6)},
    **{f"object, protocol {n}": pickle.dumps(Slots(), protocol=n) for n in range(6)},
    **{
        f"hidden in a list, protocol {n}": pickle.dumps([1, [2, {"a": Call()}]], protocol=n)
        for n in range(2, 6)
    },
    **{f"a class alone, protocol {n}": pickle.dumps(Path, protocol=n) for n in range(6)},
    **{f"a set, protocol {n}": pickle.dumps({1, 2}, protocol=n) for n in (2, 4)},
    "global": PROTO + GLOBAL + b".",
    "global and reduce": PROTO + GLOBAL + b"(X\x01\x00\x00\x00atR.",
    "os.system": PROTO + b"cos\nsystem\n(X\x04\x00\x00\x00trueta\x85R.",
    "builtins.eval": PROTO + b"cbuiltins\neval\n\x8c\x051 + 1\x85R.",
    "stack global": PROTO + b"\x8c\x02os\x8c\x06system\x93.",
    "inst": PROTO + b"(itest_plain_pickle\nrun\n.",
    "obj": PROTO + b"(" + GLOBAL + b"o.",
    "newobj": PROTO + GLOBAL + b")\x81.",
    "newobj with keywords": PROTO + GLOBAL + b")}\x92.",
    "build on a dict": PROTO + b"}}b.",
    "build on a list": PROTO + b"]}b.",
    "extension 1": PROTO + b"\x82\x01.",
    "extension 2": PROTO + b"\x83\x01\x00.",
    "extension 4": PROTO + b"\x84\x01\x00\x00\x00.",
    "persistent id": PROTO + b"Pname\n.",
    "binary persistent id": PROTO + b"K\x01Q.",
    "out-of-band buffer": b"\x80\x05\x97.",
    "bytearray of a terabyte": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "text of a terabyte": PROTO + b"\x8d" + struct.pack("<Q", 1 << 40) + b".",
    "bytes of 4 GiB": PROTO + b"B" + struct.pack("<I", (1 << 32) - 1) + b".",
    "number of 2 GiB": PROTO + b"\x8b" + struct.pack("<i", (1 << 31) - 1) + b".",
    "negative length of a number": PROTO + b"\x8b" + struct.pack("<i", -1) + b".",
    "number of 2,000 bits": PROTO + b"\x8a\xfa" + b"\xff" * 250 + b".",
    "memo of 64 GiB": PROTO + b"Nr\xff\xff\xff\xff.",
    "memo out of order": PROTO + b"Nq\xff.",
    "unknown memo entry": PROTO + b"j\xff\xff\xff\xff.",
    "frame beyond the end": PROTO + b"\x95" + struct.pack("<Q", 1 << 62) + b"N.",
    "three million empty lists": PROTO + b"]" * 3_000_000 + b".",
    "three million empty dicts": PROTO + b"}" * 3_000_000 + b".",
    "a million nested tuples": PROTO + b")" + b"\x85" * 1_000_000 + b".",
    "mark without end": PROTO + b"(" * 1000 + b".",
    "pop of nothing": PROTO + b"0.",
    "append to nothing": PROTO + b"Na.",
    "set items of a number": PROTO + b"K\x01(K\x01K\x02u.",
    "unhashable key": PROTO + b"}]Ns.",
    "stop with nothing": PROTO + b".",
    "protocol 9": b"\x80\x09N.",
    "protocol 0": b"(lp0\nI1\na.",
    "nothing": b"",
    "text": b"hello, this is no pickle at all\n",
    "zeros": b"\0" * 1000,
    "invalid utf-8": PROTO + b"\x8c\x02\xff\xfe.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_one_clear_error(name: str) -> None:
    """No code runs, and the memory stays below three times the file plus 50 MiB."""
    RAN.clear()
    data = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(RecordError):
            loads(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not RAN
    assert peak < 3 * len(data) + (50 << 20)


def test_the_hostile_ones_would_have_run() -> None:
    """The list above, of more than 40, is shown to bite: plain unpickling calls the function."""
    assert len(HOSTILE) > 40
    RAN.clear()
    pickle.loads(HOSTILE["reduce, protocol 4"])
    assert RAN == ["reduce"]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_back_equal(protocol: int) -> None:
    """Numbers, text, lists, tuples and dicts of every size a recording has."""
    data = {
        "a": [1, -1, 300, 1 << 62, 2.5, True, None],
        "b": ({}, (), (1, 2, 3, 4), "é" * 1000),
        "c": ["x"] * 300,
    }
    assert loads(pickle.dumps(data, protocol)) == data


def test_every_opcode_is_measured_right() -> None:
    """The scan's lengths are those that pickletools has."""
    from memlens.records.plain_pickle import _LENGTHS, _PREFIXES

    for op in pickletools.opcodes:
        code = op.code.encode("latin-1")
        width = 0 if op.arg is None else op.arg.n
        if code in _LENGTHS:
            assert _LENGTHS[code] == 1 + width, op.name
        if code in _PREFIXES:
            assert width < 0, op.name


def test_reading_leaves_the_collector_as_it_was(tmp_path: Path) -> None:
    """Garbage collection is on again after a good file and after a bad one; missing files are errors too."""
    import gc

    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps([1]))
    assert read(path) == [1]
    path.write_bytes(PROTO + b"j\xff\xff\xff\xff.")
    with pytest.raises(RecordError, match=r"a\.pickle"):
        read(path)
    assert gc.isenabled()
    with pytest.raises(RecordError, match="No such file"):
        read(tmp_path / "missing.pickle")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on the size that the file system says, before a byte is read."""
    monkeypatch.setattr("memlens.records.plain_pickle.MAX_FILE_BYTES", 10)
    path = tmp_path / "large.pickle"
    path.write_bytes(os.urandom(11))
    with pytest.raises(RecordError, match="11 B"):
        read(path)
