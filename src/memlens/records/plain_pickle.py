"""Pickles that hold plain data, read without running anything in them.

A pickle is a program. Two guards protect against it: a scan that knows every opcode's length and admits only
those that make numbers, text, lists, tuples and dicts, with bounds that the file itself must pay for; and
an unpickler that finds no class. The scan costs some 0.1 us an opcode.
"""

from __future__ import annotations

import gc
import io
import pickle
from pathlib import Path
from typing import Any, NoReturn

from memlens.errors import RecordError
from memlens.units import GIB, format_bytes

MAX_FILE_BYTES = 4 * GIB  # a recording of ten million events with stacks; it would need 20 times that in RAM
# A container costs 56 bytes and more in memory and one byte in the file. Real recordings spend 60 bytes of
# file on each; a file with more than one in 12 bytes is made to fill the memory.
_FREE_CONTAINERS = 100_000
_BYTES_PER_CONTAINER = 12
_MAX_INT_BYTES = 9  # 64 bits and a sign

# opcode -> length with its argument. Everything that is not here is refused.
_LENGTHS = {
    pickle.PROTO: 2, pickle.FRAME: 9, pickle.MARK: 1, pickle.STOP: 1, pickle.POP: 1,
    pickle.NONE: 1, pickle.NEWTRUE: 1, pickle.NEWFALSE: 1,
    pickle.BININT: 5, pickle.BININT1: 2, pickle.BININT2: 3, pickle.BINFLOAT: 9,
    pickle.EMPTY_LIST: 1, pickle.EMPTY_TUPLE: 1, pickle.EMPTY_DICT: 1,
    pickle.APPEND: 1, pickle.APPENDS: 1, pickle.SETITEM: 1, pickle.SETITEMS: 1,
    pickle.TUPLE: 1, pickle.TUPLE1: 1, pickle.TUPLE2: 1, pickle.TUPLE3: 1,
    pickle.BINGET: 2, pickle.LONG_BINGET: 5, pickle.MEMOIZE: 1, pickle.BINPUT: 2, pickle.LONG_BINPUT: 5,
}  # fmt: skip
# opcode -> bytes of the length that precedes its argument
_PREFIXES = {
    pickle.SHORT_BINUNICODE: 1, pickle.BINUNICODE: 4, pickle.BINUNICODE8: 8,
    pickle.SHORT_BINBYTES: 1, pickle.BINBYTES: 4, pickle.LONG1: 1,
}  # fmt: skip
_CONTAINERS = {
    pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3
}  # fmt: skip
_TABLE = [_LENGTHS.get(bytes([code]), 0) for code in range(256)]
# the opcodes that need a closer look than their length
for _op in (*_CONTAINERS, pickle.BINPUT, pickle.LONG_BINPUT, pickle.STOP):
    _TABLE[_op[0]] = 0


def read(path: Path) -> Any:
    """The plain data in the pickle at `path`; RecordError if it is anything else."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise RecordError(
                f"{path} has {format_bytes(size)}; memlens reads up to {format_bytes(MAX_FILE_BYTES)}",
                hint="record fewer events: torch.cuda.memory._record_memory_history(max_entries=100000)",
            )
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        return loads(data)
    except RecordError as error:
        raise RecordError(f"cannot read {path}: {error.message}", hint=error.hint) from None


def loads(data: bytes) -> Any:
    """The plain data in a pickle.

    >>> loads(pickle.dumps({"a": [1, 2.5, "three", None]}))
    {'a': [1, 2.5, 'three', None]}
    """
    scan(data)
    collecting = gc.isenabled()
    gc.disable()  # a million small dicts would be walked again and again
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:
        # whatever is wrong with the file: the unpickler raises half of the built-in exceptions
        raise RecordError(f"it is damaged ({type(error).__name__}: {error})") from None
    finally:
        if collecting:
            gc.enable()


def scan(data: bytes) -> None:
    """Raise RecordError unless `data` is a pickle of plain data, complete and within bounds."""
    if not data.startswith(pickle.PROTO):
        raise RecordError(f"it is no pickle: it begins with {data[:8]!r}" if data else "it is empty")
    table, size, position, puts = _TABLE, len(data), 0, 0
    containers = _FREE_CONTAINERS + size // _BYTES_PER_CONTAINER  # how many more the file may make
    while position < size:
        length = table[data[position]]
        if length:
            position += length
            continue
        op = data[position : position + 1]
        if op == pickle.STOP:
            return
        if op in _CONTAINERS:
            containers -= 1
            position += 1
            if containers < 0:
                raise RecordError(f"{size} bytes are nearly all containers: it is made to fill the memory")
        elif op in _PREFIXES:
            width = _PREFIXES[op]
            length = int.from_bytes(data[position + 1 : position + 1 + width], "little")
            if op == pickle.LONG1 and length > _MAX_INT_BYTES:
                raise RecordError(f"byte {position} holds a number of {length * 8} bits")
            position += 1 + width + length
        elif op in (pickle.BINPUT, pickle.LONG_BINPUT):
            # the memo is an array: one put at index 2**32 would make the unpickler fill 64 GiB
            width = _LENGTHS[op] - 1
            index = int.from_bytes(data[position + 1 : position + 1 + width], "little")
            puts += 1
            if index > puts:
                raise RecordError(f"byte {position} stores object number {index} out of order")
            position += 1 + width
        else:
            _refuse(op, position)
    raise RecordError(f"it is truncated ({size} bytes, without an end)")


_CALLS = {
    pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX,
    pickle.REDUCE, pickle.BUILD, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID,
}  # fmt: skip


def _refuse(op: bytes, position: int) -> NoReturn:
    if op in _CALLS:
        raise RecordError(
            f"byte {position} asks for a class or a call, which plain recordings never do; nothing was run",
            hint="do not unpickle this file with anything else",
        )
    raise RecordError(f"byte {position} ({op[0]:#04x}) is not what a recording holds")


class _Unpickler(pickle.Unpickler):
    """Finds no class at all: the second guard."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is refused")
