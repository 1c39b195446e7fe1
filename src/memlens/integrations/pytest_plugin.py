"""pytest: a budget for a test's memory, and a fixture that measures.

    @pytest.mark.limit_memory("24 MB")
    def test_load(): ...

    def test_parse(memory):
        with memory.measure() as used:
            parse()
        assert used.peak_bytes < 10 * 2**20

A test is charged for the most that its process held while the test ran, above what it held when it began.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from memlens.errors import UsageError
from memlens.measurement.host.meters import Meter, meter
from memlens.units import format_bytes, parse_bytes


@dataclass
class Used:
    """`peak_bytes`: the most above the start; `net_bytes`: what stayed. Known when the block has ended."""

    start_bytes: int
    peak_bytes: int = 0
    net_bytes: int = 0


class Memory:
    """What the `memory` fixture gives."""

    def __init__(self, backend: str | None = None) -> None:
        self.meter: Meter = meter(backend)

    @contextmanager
    def measure(self) -> Iterator[Used]:
        """Measure a block."""
        watcher = self.meter.start()
        try:
            used = Used(self.meter.look(watcher)[0])
            try:
                yield used
            finally:
                now, high = self.meter.look(watcher)
                used.peak_bytes, used.net_bytes = high - used.start_bytes, now - used.start_bytes
        finally:
            self.meter.stop(watcher)


@pytest.fixture
def memory() -> Memory:
    """Measures the memory of a block: `with memory.measure() as used: ...`."""
    return Memory()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", 'limit_memory(size): fails the test if it needs more memory, such as "24 MB" or "1 GiB"'
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    mark = item.get_closest_marker("limit_memory")
    if mark is None:
        return (yield)
    if len(mark.args) != 1 or mark.kwargs:
        raise UsageError('limit_memory takes one size, such as @pytest.mark.limit_memory("24 MB")')
    limit = parse_bytes(mark.args[0])
    with Memory().measure() as used:
        result = yield
    if used.peak_bytes > limit:
        pytest.fail(
            f"{item.name} needed {format_bytes(used.peak_bytes)} at its peak, {format_bytes(limit)} is its "
            f"limit ({format_bytes(used.net_bytes)} was still held when it ended)",
            pytrace=False,
        )
    return result
