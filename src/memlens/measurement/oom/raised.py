"""Exceptions at the moment they are raised, also those that the program catches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from memlens.measurement.lines.tracing import monitoring, take_tool

Told = Callable[[BaseException], object]


def listen(kind: type[BaseException], told: Told) -> Callable[[], None] | None:
    """Call `told` with each exception of a kind, once, where it is raised; returns what ends that.

    None where Python cannot (before 3.12) or all of its monitoring tools are in use. Costs nothing until
    something is raised, and then under a microsecond a frame. What `told` raises is dropped.
    """
    tool = take_tool("memlens exceptions") if monitoring is not None else None
    if tool is None:
        return None
    raised = monitoring.events.RAISE

    def callback(code: object, offset: int, error: BaseException) -> None:
        trace = error.__traceback__
        if trace is None or trace.tb_next is None:  # else it passes a caller of where it was raised
            with suppress(Exception):
                told(error)

    def close() -> None:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, raised, None)
        monitoring.free_tool_id(tool)

    monitoring.register_callback(tool, raised, callback)
    monitoring.set_events(tool, raised)
    return close
