"""Exceptions at the moment they are raised, also those that the program catches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from memlens.measure.tracing import TOOL_IDS

Told = Callable[[BaseException], object]


def listen(kind: type[BaseException], told: Told) -> Callable[[], None] | None:
    """Call `told` with each exception of a kind, once, where it is raised; returns what ends that.

    None where Python cannot (before 3.12) or all of its monitoring tools are in use. Costs nothing until
    something is raised, and then under a microsecond a frame. What `told` raises is dropped.
    """
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return None
    raised = monitoring.events.RAISE
    for tool in TOOL_IDS:
        if monitoring.get_tool(tool) is None:
            with suppress(ValueError):  # another thread was quicker
                monitoring.use_tool_id(tool, "memlens exceptions")
                break
    else:
        return None

    def callback(code: object, offset: int, error: BaseException) -> None:
        trace = error.__traceback__
        if (
            trace is None or trace.tb_next is None
        ):  # else the exception passes a caller of where it was raised
            with suppress(Exception):
                told(error)

    def close() -> None:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, raised, None)
        monitoring.free_tool_id(tool)

    monitoring.register_callback(tool, raised, callback)
    monitoring.set_events(tool, raised)
    return close
