"""Short names for processes, for legends and tables."""

from __future__ import annotations

import os
import re
from itertools import pairwise


def short_name(words: list[str]) -> str:
    """A command line in two words: the program, and the script or module if it is an interpreter.

    >>> short_name(["/usr/bin/python3", "-u", "/home/me/train.py", "--epochs", "3"])
    'python3 train.py'
    """
    words = [word for word in words if word]
    if not words:
        return ""
    name = os.path.basename(words[0])
    for before, word in pairwise(words):
        if before == "-m":
            return f"{name} -m {word}"
        if before == "-c":
            return f"{name} -c"
        if not word.startswith("-"):
            script = os.path.basename(word)
            return f"{name} {script}" if re.search(r"\.(py|pyw|sh|pl|rb|js)$", script) else name
    return name
