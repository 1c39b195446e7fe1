"""Loops in the tree: calls that repeat one after the other become one, counted as often as they ran.

A layer applied a hundred times is one row of a hundred calls, and so is every row of a loop's body; what is
called twice with something else in between stays two rows, in the order in which it ran.
"""

from __future__ import annotations

from typing import Any

from memlens.summaries.nodes import Node

LONGEST_BODY = 64  # rows of a loop's body that are looked for


def collapse(node: Node, known: dict[Any, int] | None = None) -> int:
    """Collapse the loops below `node`; what comes back is the same number for nodes that look alike.

    Alike are calls of the same module or function with inputs of the same shapes, and all below them alike.
    """
    known = {} if known is None else known
    node.children = [child for child in node.children if child.has_cost]
    numbers = [collapse(child, known) for child in node.children]
    kept: list[Node] = []
    kept_numbers: list[int] = []
    start = 0
    while start < len(numbers):
        body, times = _loop(numbers, start)
        first = node.children[start : start + body]
        for repeat in range(1, times):
            for offset, target in enumerate(first):
                _merge(target, node.children[start + repeat * body + offset])
        kept += first
        kept_numbers += numbers[start : start + body]
        start += body * times
    node.children = kept
    return known.setdefault((node.key, *kept_numbers), len(known))


def _loop(numbers: list[int], start: int) -> tuple[int, int]:
    """Length of the body and number of times that it runs from `start` on: the loop that covers most.

    >>> _loop([1, 2, 1, 2, 1, 2, 3], 0), _loop([4, 4, 4], 0), _loop([1, 2, 3], 0)
    ((2, 3), (1, 3), (1, 1))
    """
    best = (1, 1)
    for body in range(1, min(LONGEST_BODY, (len(numbers) - start) // 2) + 1):
        pattern = numbers[start : start + body]
        times = 1
        while numbers[start + times * body : start + (times + 1) * body] == pattern:
            times += 1
        if times > 1 and times * body > best[0] * best[1]:
            best = body, times
    return best


def _merge(target: Node, other: Node) -> None:
    """Add a later, alike call and all below it to `target`."""
    other.merged_into = target
    target.calls += other.calls
    target.output_bytes += other.output_bytes
    target.macs += other.macs
    target.saved += other.saved
    for saved in other.saved:
        saved.node = target
    target.returns += [returned for returned in other.returns if returned not in target.returns]
    for mine, theirs in zip(target.children, other.children, strict=True):
        _merge(mine, theirs)
