"""What is done with a damaged file or text: every command and function that reads one."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memlens
from memlens.cli.main import main
from memlens.errors import MemlensError

COMMANDS = [
    ["report", "FILE", "-o", "page.html", "--force"],
    ["plot", "FILE"],
    ["peak", "FILE"],
    ["peak", "--json", "FILE"],
    ["compare", "FILE", "GOOD"],
    ["compare", "GOOD", "FILE"],
    ["snapshot", "FILE"],
    ["snapshot", "--json", "FILE"],
]
EXIT_CODES = (0, 1, 2)


def read_file(path: Path, good: Path, chance: random.Random) -> str:
    """Load it, explain it, and give it to one command. What was called; raises what a user would see."""
    command = [{"FILE": str(path), "GOOD": str(good)}.get(word, word) for word in chance.choice(COMMANDS)]
    try:
        trace = memlens.load(path)
        memlens.explain(trace).to_dict()
        repr(trace)
    except MemlensError as error:
        str(error)
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # strict, as a terminal is
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(command)
        except SystemExit as end:
            if end.code not in EXIT_CODES:
                raise AssertionError(f"exit code {end.code}") from end
    out.flush()
    return " ".join(command[:2])


def _texts() -> dict[str, tuple[Callable[[str], Any], str]]:
    from memlens.allocator import parse_config
    from memlens.devices import find_gpu
    from memlens.scenarios.constructor_names import parse_arguments
    from memlens.scenarios.inputs import parse_input
    from memlens.units import parse_bytes

    return {
        "parse_config": (parse_config, "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]"),
        "parse_bytes": (parse_bytes, "1.5 GiB"),
        "parse_input": (parse_input, "ids=2x128:int64"),
        "parse_arguments": (lambda text: parse_arguments([text], "--optimizer-arg"), "betas=(0.9,0.99)"),
        "find_gpu": (find_gpu, "NVIDIA A100-SXM4-40GB"),
    }


def read_text(chance: random.Random) -> str:
    """A damaged word for one parser."""
    texts = _texts()
    name = chance.choice(sorted(texts))
    parse, text = texts[name]
    characters = list(text)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(characters) + 1)
        characters[place : place + chance.randint(0, 2)] = chance.choice(ALPHABET) * chance.choice(
            [1, 1, 1, 40]
        )
    with contextlib.suppress(MemlensError):
        parse("".join(characters))
    return f"{name}({''.join(characters)!r})"


ALPHABET = [*"0123456789.,:;=-+x*()[]{}<>'\" \n\t_aeGMKiB%\\/", "1e999", "\ud800", "\x00", "é", "٣", "nan"]
