"""Reads the documentation as tests need it: fenced blocks, the commands in them, options, links."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"(?<![\w/-])(--[a-z][a-z-]*[a-z]|-[A-Za-z])(?![\w-])")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TYPED = re.compile(r"(?:\$ )?((?:python -m )?memlens|make|pip|python|mprof)(?: .*)?")


def pages() -> list[Path]:
    """The README and every page that users read."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block: the language after the backticks, the text, and the line where it begins."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    return [
        Block(found[2], found[3], text.count("\n", 0, found.start()) + 1) for found in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[list[str]]:
    """The command lines of a block as words; comments, prompts and what commands printed are left out.

    >>> commands(Block("sh", "$ memlens gpus a100   # one\\nFits the T4\\n", 1))
    [['memlens', 'gpus', 'a100']]
    """
    if block.language == "python":
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    typed = [line.removeprefix("$ ") for line in lines if TYPED.fullmatch(line)]
    return [shlex.split(line.replace("python -m memlens", "memlens"), comments=True) for line in typed]


def spans(text: str) -> list[str]:
    """What stands in single backticks."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def options(text: str) -> set[str]:
    """Every option that a text names in code: `--gpu`, `-o`."""
    return set(OPTION.findall("\n".join([*(block.text for block in blocks(text)), *spans(text)])))


def links(text: str) -> list[str]:
    """The targets of all links that lead to a file, without what stands after #."""
    found = LINK.findall(FENCE.sub("", text))
    return [link.split("#")[0] for link in found if "://" not in link and not link.startswith("#")]
