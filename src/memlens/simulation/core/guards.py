"""Checks in a program that end it: `assert ...`, `if ...: raise`, `if ...: sys.exit()`.

Where such a check asks for a value that nobody computed, the program of the user is taken to be sound: the
value is the one by which it goes on. What is asked for is found in the source, by the position of the
instruction that runs.
"""

from __future__ import annotations

import ast
import dis
import itertools
import linecache
import os
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import memlens

_PLUMBING = (
    os.path.dirname(memlens.__file__) + os.sep,
    *(
        f"{os.sep}torch{os.sep}{name}"
        for name in ("_tensor.py", "overrides.py", "_ops.py", "utils/_device.py")
    ),
)
# calls that end the program, by their last name
_ENDS = {"exit", "_exit", "quit", "abort", "fail", "_fail"}
# functions whose answer is that of what they are given, and expressions that hold it
_ASKS = {"bool", "any", "all", "int", "float"}
_PASSES_ON = (ast.BoolOp, ast.NamedExpr, ast.Call, ast.GeneratorExp)
# statements, and parts of them, that hold others
_BLOCKS = (
    ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ExceptHandler, ast.Match, ast.match_case, ast.AsyncFor,
    ast.AsyncWith, ast.TryStar,
)  # fmt: skip
# what may be evaluated a second time without harm
_HARMLESS = (
    ast.Expression, ast.Compare, ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Subscript,
    ast.expr_context, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
# instructions that look at a value and keep it as it is
_LOOKS = {"TO_BOOL", "UNARY_NOT", "COPY", "NOP", "CACHE", "EXTENDED_ARG"}

Span = tuple[int, int, int, int]  # first line, first column, last line, last column


class Asked(NamedTuple):
    """The expression by which a check asked, and whether it has to be true for the program to go on."""

    node: ast.expr
    has_to_be: bool
    compare: ast.Compare | None  # the comparison that it is a part of


def asker(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is neither ours nor torch's way to us."""
    while frame is not None and _is_plumbing(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def condition(frame: FrameType | None) -> bool | None:
    """What a condition that `frame` asks for has to be for the program to go on; None: either will do."""
    asked = _asked(asker(frame))
    return None if asked is None or asked.compare is not None else asked.has_to_be


def number(frame: FrameType | None, usual: Any) -> Any:
    """A number for which the comparison that `frame` makes lets the program go on: `usual` if that does."""
    frame = asker(frame)
    asked = _asked(frame)
    if frame is None or asked is None or asked.compare is None:
        return usual
    others = [side for side in (asked.compare.left, *asked.compare.comparators) if side is not asked.node]
    if len(others) != len(asked.compare.comparators):
        return usual
    values = [value for value in (_value(side, frame) for side in others) if isinstance(value, (int, float))]
    kind = type(usual)
    near = [kind(value + step) for value in values for step in (0, -1, 1) if abs(value) < float("inf")]
    for candidate in (usual, *near):
        holds = _value(_with(asked.compare, asked.node, candidate), frame)
        if holds is None:
            return usual
        if bool(holds) is asked.has_to_be:
            return candidate
    return usual


def _asked(frame: FrameType | None) -> Asked | None:
    """What the instruction of `frame` asks, if a check does; what it returns, its caller may check."""
    if frame is None:
        return None
    kind, test, has_to_be = _check(frame.f_code, frame.f_lasti)
    if kind == "return":
        outer = _asked(frame.f_back)
        if outer is None or outer.compare is not None:
            return None
        has_to_be = outer.has_to_be
    if test is None:
        return None
    span = _span(frame.f_code, frame.f_lasti)
    return None if span is None else _down(test, span, has_to_be, None)


@lru_cache(maxsize=4096)
def _check(code: CodeType, instruction: int) -> tuple[str, ast.expr | None, bool]:
    """The kind of the statement that runs (check, return), its expression, and what that has to be."""
    span = _span(code, instruction)
    tree = None if span is None else _tree(code.co_filename)
    if span is None or tree is None:
        return "", None, False
    for kind, test, has_to_be in tree:
        if _holds(_of(test), span):
            return kind, test, has_to_be
    return "", None, False


@lru_cache(maxsize=256)
def _tree(file: str) -> list[tuple[str, ast.expr, bool]] | None:
    """The checks of a file, what its functions return, and what is named before it is checked."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    return [check for scope in _scopes(tree) for check in _checks(scope)]


def _scopes(tree: ast.AST) -> Iterator[list[tuple[ast.stmt, list[ast.stmt]]]]:
    """The statements of the module and of each function, nested blocks included, functions in it left out."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield list(_statements(node.body))


def _statements(body: list[Any]) -> Iterator[tuple[ast.stmt, list[ast.stmt]]]:
    """Each statement, and what follows it in its block."""
    for number, part in enumerate(body):
        if isinstance(part, ast.stmt):
            yield part, body[number + 1 :]
        if isinstance(part, _BLOCKS):
            for _, block in ast.iter_fields(part):
                if isinstance(block, list):
                    yield from _statements(block)


def _checks(scope: list[tuple[ast.stmt, list[ast.stmt]]]) -> Iterator[tuple[str, ast.expr, bool]]:
    named: dict[str, bool] = {}
    for statement, rest in scope:
        if isinstance(statement, ast.Return) and statement.value is not None:
            yield "return", statement.value, True
        test, has_to_be = _test(statement, rest)
        if test is not None:
            yield "check", test, has_to_be
            for node in ast.walk(test):
                asked = _down(test, _of(node), has_to_be, None) if isinstance(node, ast.Name) else None
                if isinstance(node, ast.Name) and asked is not None and asked.compare is None:
                    named[node.id] = asked.has_to_be
    for statement, _ in scope:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in named:
                yield "check", statement.value, named[name]


def _test(statement: ast.stmt, rest: list[ast.stmt]) -> tuple[ast.expr | None, bool]:
    """The test of a statement that is a check, and what it has to be."""
    if isinstance(statement, ast.Assert):
        return statement.test, True
    if isinstance(statement, ast.If):
        other = statement.orelse or (rest if isinstance(statement.body[-1], ast.Return) else [])
        if _ends(statement.body) != _ends(other):
            return statement.test, _ends(other)
    return None, False


def _ends(body: list[ast.stmt]) -> bool:
    """Whether a block ends the program."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Assert):
        return isinstance(last.test, ast.Constant) and not last.test.value
    call = last.value if isinstance(last, ast.Expr) else None
    if isinstance(call, ast.Call):
        return _name(call) in _ENDS
    return isinstance(last, ast.Raise)


def _down(node: ast.expr, span: Span, has_to_be: bool, compare: ast.Compare | None) -> Asked | None:
    """The expression at `span` below `node`, which has to be so."""
    if _of(node) == span or not _holds(_of(node), span):
        return Asked(node, has_to_be, compare) if _of(node) == span else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        has_to_be = not has_to_be
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        flags = [
            side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, bool)
        ]
        if len(sides) == 2 and flags:
            has_to_be = has_to_be == (flags[0] == isinstance(node.ops[0], (ast.Eq, ast.Is)))
        else:
            compare = node
    elif not isinstance(node, _PASSES_ON) or (isinstance(node, ast.Call) and _name(node) not in _ASKS):
        return None
    if compare is not None and compare is not node:
        return Asked(node, has_to_be, compare)  # a part of what is compared, such as int(x.item())
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and _holds(_of(child), span):
            return _down(child, span, has_to_be, compare)
    return None


def _with(compare: ast.Compare, node: ast.expr, value: Any) -> ast.Compare:
    """The comparison with `value` in place of a side of it."""
    sides = [ast.Constant(value) if side is node else side for side in (compare.left, *compare.comparators)]
    return ast.Compare(sides[0], compare.ops, sides[1:])


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What a harmless expression is; None for any other."""
    expression = ast.fix_missing_locations(ast.Expression(node))
    if not all(isinstance(part, _HARMLESS) for part in ast.walk(expression)):
        return None
    try:
        return eval(compile(expression, "<check>", "eval"), frame.f_globals, frame.f_locals)
    except Exception:
        return None


def _name(call: ast.Call) -> str:
    """The last name of what is called."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _is_plumbing(file: str) -> bool:
    return file.startswith(_PLUMBING[0]) or file.endswith(_PLUMBING[1:])


@lru_cache(maxsize=4096)
def _span(code: CodeType, instruction: int) -> Span | None:
    """Where in the source the value is made that the instruction asks; None if that is not known.

    A jump stands for a whole statement; what it looks at was made by the instruction before it.
    """
    made = instruction
    for before in dis.get_instructions(code):
        if before.offset >= instruction:
            if before.opname in _LOOKS or "JUMP" in before.opname:
                break
            made = instruction
            break
        if before.opname not in _LOOKS and "JUMP" not in before.opname:
            made = before.offset
    first, last, begin, end = next(itertools.islice(code.co_positions(), made // 2, None))
    if first is None or last is None or begin is None or end is None:
        return None
    return first, begin, last, end


def _of(node: Any) -> Span:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _holds(outer: Span, inner: Span) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]
