"""The words in a card's name, however it is spelled.

>>> sorted(name_tokens("NVIDIA A100-SXM4-80GB")), sorted(name_tokens("rtx4090"))
(['80gb', 'a100', 'sxm'], ['4090'])
"""

from __future__ import annotations

import re

# words that go with every card, and tell none from another
_NOISE = {"nvidia", "geforce", "tesla", "rtx", "gtx", "amd", "instinct", "radeon"}
_NOISE |= {"gpu", "card", "graphics", "generation", "edition", "series", "the", "tensor", "core", "vram"}
_NOISE |= {"hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7"}
_SAME = {"mobile": "laptop", "notebook": "laptop", "maxq": "max-q", "s": "super"}

# Words that make a different card of the same number. Memory sizes and form factors do not.
QUALIFIERS = {"ti", "super", "laptop", "ada", "pro", "nvl", "quadro", "workstation", "server", "blackwell"}
QUALIFIERS |= {"max-q", "jetson", "nano", "nx", "agx"}

_SPELLINGS: tuple[tuple[str, str], ...] = (
    (r"max[- ]q", "maxq"),
    (r"titan[- ]*(rtx|v|xp)\b", r"titan\1"),
    (r"\b(rtx|gtx|geforce|quadro|tesla|nvidia)(?=[a-z]?\d)", r"\1 "),  # rtx4090, rtxa6000
    (r"\b(\d{4})(ti|super|s|laptop|mobile|m|d)\b", r"\1 \2"),  # 4070ti, 3080m
    (r"\b(\d{4}) m\b", r"\1 laptop"),
    (r"\b(\d+) *(?:gb|gib|g)\b", r" \1gb "),
    (r"\bsxm\d?\b", "sxm"),
    (r"\bpci-?e\b", "pcie"),
)


def normalise(name: str) -> str:
    """`name` in lower case with one spelling for each word, in the order in which they were typed."""
    text = re.sub(r"[_/,()\[\]]", " ", name.lower()).replace("-", " ")
    for pattern, replacement in _SPELLINGS:
        text = re.sub(pattern, replacement, text)
    words = [_SAME.get(word, word) for word in text.split()]
    return " ".join(word for word in words if word not in _NOISE)


def name_tokens(name: str) -> frozenset[str]:
    """The words of a name that tell cards apart; a bare number up to 512 is read as gigabytes."""
    words = normalise(name).split()
    sized = (f"{word}gb" if word.isdigit() and int(word) <= 512 else word for word in words)
    return frozenset(sized)
