"""How one Python object refers to another, as code would write it: `[3]`, `.weight`, `['batch']`."""

from __future__ import annotations

from collections import deque
from types import (
    AsyncGeneratorType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    TracebackType,
)
from typing import Any

from torch import nn

from memlens.measurement.tensors.stacks import locals_of


class Step:
    """`thing` leads to the tensor by `text` and then the steps after it; `through` are the kinds passed."""

    __slots__ = ("after", "graph", "key", "text", "thing", "through")

    def __init__(
        self,
        thing: Any,
        text: str = "",
        after: Step | None = None,
        *,
        key: object = None,
        through: tuple[str, ...] = (),
        graph: str = "",
    ) -> None:
        self.thing, self.text, self.after, self.key = thing, text, after, key
        self.through: tuple[str, ...] = through + (after.through if after else ())
        self.graph: str = after.graph if after else graph

    @property
    def expression(self) -> str:
        return self.text + self.rest

    @property
    def rest(self) -> str:
        """The expression without this step's own part."""
        return self.after.expression if self.after else ""


def label(referrer: Any, wanted: dict[int, Step]) -> Step | None:
    """The step from `referrer` to one of the things wanted; None where there is no saying which."""
    if isinstance(referrer, dict):
        for key, value in list(referrer.items()):
            if (after := wanted.get(id(value))) is not None:
                return Step(referrer, f"[{_short(key)}]", after, key=key, through=("dict",))
            if (after := wanted.get(id(key))) is not None:
                return Step(referrer, f".keys() {after.text}", after, key=key, through=("dict",))
        return None
    if isinstance(referrer, list | tuple | deque | set | frozenset):
        for number, value in enumerate(list(referrer)):
            if (after := wanted.get(id(value))) is not None:
                return Step(referrer, f"[{number}]", after, key=number, through=("list",))
        return None
    for kind, follow in _FOLLOW:
        if isinstance(referrer, kind):
            return follow(referrer, wanted)
    return _instance(referrer, wanted)


def _cell(referrer: CellType, wanted: dict[int, Step]) -> Step | None:
    after = wanted.get(id(referrer.cell_contents))
    return Step(referrer, "", after) if after else None


def _function(referrer: FunctionType, wanted: dict[int, Step]) -> Step | None:
    """A closure's variable, a default, or an attribute of the function."""
    cells = wanted.get(id(referrer.__closure__)) if referrer.__closure__ else None
    if cells is not None and isinstance(cells.key, int):
        name = referrer.__code__.co_freevars[cells.key]
        return Step(
            referrer, f"<closure {name} of {referrer.__qualname__}>", cells.after, through=("closure",)
        )
    for part, text in (("__defaults__", "<defaults>"), ("__kwdefaults__", "<defaults>"), ("__dict__", "")):
        if (after := wanted.get(id(getattr(referrer, part)))) is not None:
            return Step(referrer, text, after)
    return None


def _frame(referrer: FrameType, wanted: dict[int, Step]) -> Step | None:
    """A frame that runs no more: kept by a traceback, or by a debugger."""
    for name, value in locals_of(referrer).items():
        if (after := wanted.get(id(value))) is not None:
            return Step(referrer, f"<{name} in {referrer.f_code.co_name}:{referrer.f_lineno}>", after)
    return None


def _traceback(referrer: TracebackType, wanted: dict[int, Step]) -> Step | None:
    after = wanted.get(id(referrer.tb_frame)) or wanted.get(id(referrer.tb_next))
    return Step(referrer, "", after) if after else None


def _exception(referrer: BaseException, wanted: dict[int, Step]) -> Step | None:
    for part in ("__traceback__", "__context__", "__cause__", "args"):
        if (after := wanted.get(id(getattr(referrer, part)))) is not None:
            through = ("traceback",) if part == "__traceback__" else ()
            return Step(referrer, f".{part}", after, through=through)
    return _instance(referrer, wanted)


def _generator(referrer: Any, wanted: dict[int, Step]) -> Step | None:
    frame = getattr(referrer, "gi_frame", None) or getattr(referrer, "cr_frame", None)
    frame = frame or getattr(referrer, "ag_frame", None)
    for name, value in locals_of(frame).items() if frame is not None else ():
        if (after := wanted.get(id(value))) is not None:
            return Step(referrer, f"<{name} in {referrer.__qualname__}>", after, through=("generator",))
    return None


def _method(referrer: MethodType, wanted: dict[int, Step]) -> Step | None:
    after = wanted.get(id(referrer.__self__)) or wanted.get(id(referrer.__func__))
    return Step(referrer, f".{referrer.__name__}<self>", after) if after else None


def _class(referrer: type, wanted: dict[int, Step]) -> Step | None:
    """A class attribute: the class's dict leads to it."""
    for name, value in list(vars(referrer).items()):
        if (after := wanted.get(id(value))) is not None:
            return Step(referrer, f".{name}", after, through=("object",))
    for after in wanted.values():
        inner, key = after.after, str(after.key)
        if isinstance(after.thing, dict) and inner is not None and vars(referrer).get(key) is inner.thing:
            return Step(referrer, f".{key}", inner, through=("object",))
    return None


def _instance(referrer: Any, wanted: dict[int, Step]) -> Step | None:
    """An attribute; a module's parameter, buffer or child is one too, whatever dict it lies in."""
    attributes = getattr(referrer, "__dict__", None)
    if isinstance(attributes, dict):
        inner = wanted.get(id(attributes))
        if inner is not None and inner.after is not None:  # through its dict, which came a level before
            return _attribute(referrer, str(inner.key), inner.after)
        for name, value in list(attributes.items()):
            if (after := wanted.get(id(value))) is not None:
                return _attribute(referrer, name, after)
    for base in type(referrer).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if (after := wanted.get(id(getattr(referrer, name, None)))) is not None:
                return Step(referrer, f".{name}", after, through=("object",))
    # in C, out of sight: the collector says that it refers to one of them, not to which
    after = next(iter(wanted.values())) if len(wanted) == 1 else None
    return Step(referrer, f"<{type(referrer).__name__}>", after, through=("object",)) if after else None


def _attribute(referrer: Any, name: str, after: Step) -> Step:
    members = name in ("_parameters", "_buffers", "_modules") and isinstance(referrer, nn.Module)
    if members and after.after is not None:
        key = str(after.key)
        text = f"[{key}]" if key.isdigit() else f".{key}"
        return Step(referrer, text, after.after, through=("module",))
    return Step(referrer, f".{name}", after, through=("object",))


def _short(key: object) -> str:
    text = repr(key) if isinstance(key, str | int | float | bool | None) else f"<{type(key).__name__}>"
    return text if len(text) <= 40 else f"{text[:37]}..."


_FOLLOW: tuple[tuple[Any, Any], ...] = (
    (CellType, _cell),
    (FunctionType, _function),
    (FrameType, _frame),
    (TracebackType, _traceback),
    (BaseException, _exception),
    (GeneratorType | CoroutineType | AsyncGeneratorType, _generator),
    (MethodType, _method),
    (type, _class),
)
