"""`who_holds(tensor)`: the names that keep a tensor alive, found by asking Python's collector backwards.

From the tensor (and the others that share its storage, and the ends of the autograd graphs that saved it) to
what refers to them, level by level, until a variable is met. Variables of running functions are in no object
that the collector sees: at each level the stacks of all threads are searched too.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from memlens.errors import UsageError
from memlens.measurement.tensors import autograd_graph
from memlens.measurement.tensors.reference_steps import Step, label
from memlens.measurement.tensors.stacks import locals_of, running
from memlens.model.holders import Holders, ReferenceHolder

LEVELS = 32  # a module in a module is two, and so is each traceback entry
WIDTH = 4_000  # objects looked at in one level, before the search is cut
MOST = 12  # holders told


def who_holds(tensor: Tensor) -> Holders:
    """Every chain of names that keeps `tensor`, or its storage, alive; print it to read.

    The caller's own variable is among them. Takes some 0.1 to 1 s, since the collector is asked once a level.
    Raises UsageError for what is no tensor.

    Example:
        >>> import torch
        >>> kept = [torch.ones(3)]
        >>> print(who_holds(kept[0]))  # doctest: +SKIP
        kept[0], global variable of __main__
    """
    if not isinstance(tensor, Tensor):
        raise UsageError(
            f"who_holds() takes a tensor, got {type(tensor).__name__}", hint="give it the tensor itself"
        )
    with torch._C.DisableTorchFunction():
        return _search(_begin(tensor))


def _begin(tensor: Tensor) -> list[Step]:
    """The tensor, those that share its storage, whose gradient it is, and the graphs that saved it."""
    storage = _storage(tensor)
    steps = [Step(tensor)]
    ends: list[tuple[Any, Tensor]] = []
    for other in _tensors():
        if other is not tensor and _storage(other) == storage:
            steps.append(Step(other, through=("view",)))
        if other.grad_fn is not None:
            ends.append((other.grad_fn, other))
        elif other.requires_grad and other.grad is not None and _storage(other.grad) == storage:
            steps.append(Step(other, ".grad", through=("gradient",)))
    return steps + list(_graphs(storage, ends))


def _graphs(storage: int, ends: list[tuple[Any, Tensor]]) -> Iterator[Step]:
    """The last tensors of graphs in which a node saved this storage, with the node's name and distance."""
    inner = {
        following
        for node in autograd_graph.walk(node for node, _ in ends)
        for following, _ in node.next_functions
        if following is not None
    }
    for end, tensor in ends:
        if end in inner:
            continue  # a tensor on the way: the graph ends elsewhere
        for distance, node in enumerate(autograd_graph.walk([end])):
            if any(_storage(kept) == storage for kept in autograd_graph.kept_by(node)):
                how = f"saved by {type(node).__name__}, {distance} nodes behind"
                yield Step(tensor, through=("autograd graph",), graph=how)
                break


def _search(frontier: list[Step]) -> Holders:
    """Level by level towards variables."""
    holders: list[ReferenceHolder] = []
    modules = _globals()
    frames = {id(frame) for frame in running()}
    seen = {id(step.thing) for step in frontier}
    cut = False
    for _ in range(LEVELS):
        wanted = {id(step.thing): step for step in frontier}
        holders += [*_in_frames(wanted), *_handled(wanted)]
        if not frontier or len(holders) >= MOST:
            break
        following: list[Step] = []
        for referrer in _referrers(frontier):
            if id(referrer) in modules:
                holders += _in_globals(referrer, modules[id(referrer)], wanted)
            elif id(referrer) not in seen and id(referrer) not in frames and not _of_shell(referrer):
                seen.add(id(referrer))
                with suppress(Exception):  # an object of anybody's may refuse to be looked at
                    if (step := label(referrer, wanted)) is not None:
                        following.append(step)
        cut = cut or len(following) > WIDTH
        frontier = following[:WIDTH]
    unique = {(holder.expression, holder.where, holder.graph): holder for holder in holders}
    return Holders(tuple(unique.values())[:MOST], cut or len(unique) > MOST)


def _referrers(frontier: list[Step]) -> list[Any]:
    """What refers to the things of the last level, without what this search made itself."""
    things = [step.thing for step in frontier]
    return [
        referrer
        for referrer in gc.get_referrers(*things)
        if referrer is not things and type(referrer) is not Step
    ]


def _globals() -> dict[int, str]:
    """The dict of each module, by its id: where a search ends. `__main__` counts under no other name."""
    modules: dict[int, str] = {}
    for name, module in list(sys.modules.items()):
        if hasattr(module, "__dict__"):
            modules.setdefault(id(vars(module)), name)
    if "__main__" in sys.modules:
        modules[id(vars(sys.modules["__main__"]))] = "__main__"
    return modules


def _of_shell(thing: Any) -> bool:
    """Whether it belongs to a notebook's machinery, which holds what `Out` and `sys.last_value` do, too."""
    return type(thing).__module__.startswith(("IPython.", "ipykernel."))


def _in_globals(variables: dict[str, Any], module: str, wanted: dict[int, Step]) -> Iterator[ReferenceHolder]:
    for name, value in list(variables.items()):
        step = wanted.get(id(value))
        if step is not None:
            if name == "_oh" and module == "__main__":
                continue  # a notebook's other name of `Out`
            notebook = module == "__main__" and (name == "Out" or not name.strip("_0123456789"))
            kind = "notebook output" if notebook else "global variable"
            view = "view" in step.through
            yield ReferenceHolder(kind, name + step.expression, module, step.through, step.graph, view)


def _in_frames(wanted: dict[int, Step]) -> Iterator[ReferenceHolder]:
    """The variables of running functions that are one of the things wanted."""
    for frame in running(own=False):
        if frame.f_locals is frame.f_globals:
            continue  # a module's: found among the globals
        for name, value in locals_of(frame).items():
            step = wanted.get(id(value))
            if step is not None:
                file = os.path.basename(frame.f_code.co_filename)
                where = f"{frame.f_code.co_name}, {file}:{frame.f_lineno}"
                view = "view" in step.through
                yield ReferenceHolder(
                    "local variable", name + step.expression, where, step.through, step.graph, view
                )


def _handled(wanted: dict[int, Step]) -> Iterator[ReferenceHolder]:
    """An exception that is being handled without a name: `except RuntimeError:`."""
    error = sys.exc_info()[1]
    while error is not None:
        if (step := wanted.get(id(error))) is not None:
            name = f"{type(error).__name__}{step.expression}"
            yield ReferenceHolder("exception being handled", name, "", step.through, step.graph)
        error = error.__context__


def _tensors() -> list[Tensor]:
    return [thing for thing in gc.get_objects() if Tensor in type(thing).__mro__]


def _storage(tensor: Tensor) -> int:
    """The address of its storage, or of itself where it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return id(tensor)
