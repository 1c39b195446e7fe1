"""Ways to damage a file: its bytes, or the values in it, with every checksum made right again."""

from __future__ import annotations

import pickle
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

_HEADER, _FRAME = 12, struct.Struct("<II")
HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1.5, float("nan"), float("inf"), -1e308, "", "a",
    "[bold red]x[/]", "[/]", "\x1b[31m", "\ud800", "</script><script>alert(1)</script>", "x" * 5000, "%s{0}",
    [], {}, [1, "2"], {"a": [None]}, [[[]]], b"\xff\x00",
]  # fmt: skip


def damaged(path: Path, chance: random.Random) -> bytes:
    """The file with one to three things wrong."""
    data = path.read_bytes()
    inside = INSIDE.get(path.suffix)
    if inside is not None and chance.random() < 0.7:
        return inside(data, chance)
    for _ in range(chance.randint(1, 3)):
        data = chance.choice(OUTSIDE)(data, chance)
    return data


def _flip(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data)) if data else 0
    return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _leave_out(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + data[place + chance.randint(1, 40) :]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + data[place : place + chance.randint(1, 200)] * chance.randint(2, 50) + data[place:]


def _insert(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.randbytes(chance.randint(1, 30)) + data[place:]


OUTSIDE: list[Callable[[bytes, random.Random], bytes]] = [_flip, _flip, _cut, _leave_out, _repeat, _insert]


def change(value: Any, chance: random.Random) -> Any:
    """The same tree of lists and dicts with one place changed: another value, nothing, or twice as much."""
    if isinstance(value, (list, tuple)) and value and chance.random() < 0.97:
        place = chance.randrange(len(value))
        items = list(value)
        kind = chance.random()
        if kind < 0.06:
            del items[place]
        elif kind < 0.12:
            items.insert(place, items[place])
        else:
            items[place] = change(items[place], chance)
        return type(value)(items)
    if isinstance(value, dict) and value and chance.random() < 0.97:
        key = chance.choice(list(value))
        kind = chance.random()
        if kind < 0.06:
            return {name: item for name, item in value.items() if name != key}
        if kind < 0.1:
            return {
                **value,
                chance.choice(["", "x", "[b]", key + "_" if isinstance(key, str) else 1]): value[key],
            }
        return {**value, key: change(value[key], chance)}
    alike = [item for item in HOSTILE if type(item) is type(value)]
    return chance.choice(alike if alike and chance.random() < 0.6 else HOSTILE)


def _native(data: bytes, chance: random.Random) -> bytes:
    """Values inside a memlens record, in frames whose length and checksum are right."""
    frames, place = [], _HEADER
    while place + _FRAME.size <= len(data):
        size = _FRAME.unpack_from(data, place)[0]
        frames.append(msgspec.msgpack.decode(data[place + _FRAME.size : place + _FRAME.size + size]))
        place += _FRAME.size + size
    told = [
        i for i, records in enumerate(frames) if any(record[0] in ("head", "metadata") for record in records)
    ]
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.5:  # what is not one of many events
            place = chance.choice(told)
            frames[place] = change(frames[place], chance)
        else:
            frames = change(frames, chance)
            break
    payloads = [_encode(frame) for frame in frames] if isinstance(frames, list) else [_encode(frames)]
    return data[:_HEADER] + b"".join(_FRAME.pack(len(p), zlib.crc32(p)) + p for p in payloads)


def _encode(frame: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(frame)
    except (TypeError, ValueError, OverflowError):  # msgpack has no lone surrogates
        return msgspec.msgpack.encode([None])


def _pickle(data: bytes, chance: random.Random) -> bytes:
    tree = pickle.loads(data)  # our own
    for _ in range(chance.randint(1, 3)):
        tree = change(tree, chance)
    return pickle.dumps(tree, protocol=chance.choice([2, 3, 4, 5]))


def _json(data: bytes, chance: random.Random) -> bytes:
    return msgspec.json.encode(change(msgspec.json.decode(data), chance))


def _words(data: bytes, chance: random.Random) -> bytes:
    """Words of a text replaced by hostile ones."""
    lines = [line.split(b" ") for line in data.split(b"\n")]
    for _ in range(chance.randint(1, 3)):
        line = chance.choice(lines)
        word = str(chance.choice(HOSTILE)).encode("utf-8", "surrogatepass")
        line[chance.randrange(len(line))] = chance.choice([word, chance.randbytes(3)])
    return b"\n".join(b" ".join(line) for line in lines)


INSIDE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".memlens": _native,
    ".pickle": _pickle,
    ".json": _json,
    ".dat": _words,
}
