"""Whole numbers that a script assigns by name, and the script with others in their place."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


def constants(source: str) -> dict[str, int]:
    """Whole numbers that a script assigns at its top or in a class, by their names."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    return {name: node.value.value for name, node in _assignments(tree)}


def _assignments(tree: ast.Module) -> list[tuple[str, Any]]:
    places = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    assignments: list[tuple[str, Any]] = []
    for node in (node for body in places for node in body):
        target: Any = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        value = getattr(node, "value", None)
        whole = isinstance(value, ast.Constant) and type(value.value) is int
        if isinstance(target, ast.Name) and whole:
            assignments.append((target.id, node))
    return assignments


def compiled(source: bytes, path: str, values: Mapping[str, int]) -> Any:
    """The script's code with these constants in place of its own."""
    return compile(Replace(values).visit(ast.parse(source, path)), path, "exec", dont_inherit=True)


class Replace(ast.NodeTransformer):
    """Puts other values in place of a script's constants."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values

    def visit(self, tree: Any) -> Any:
        """`tree`, a module, changed in place."""
        for name, node in _assignments(tree):
            if name in self.values:
                node.value = ast.copy_location(ast.Constant(self.values[name]), node.value)
        return tree
