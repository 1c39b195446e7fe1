"""From events to rows: which line of which frame is running, and what it did to memory.

State is kept per frame: recursion, threads, generators and coroutines interleave as they like. Within one
table the increments telescope: a line is closed by the reading that opens the next, and where a function
calls itself, the outer line gets what the inner call did not.
"""

from __future__ import annotations

import dis
import time
from collections.abc import Callable
from functools import cache
from threading import get_ident
from types import CodeType

from memlens.measurement.host.meters import Meter

Ranges = tuple[tuple[int, int], ...]
# what follows a comprehension's loop until the statement goes on: names restored, the result stored
AFTER_COMPREHENSION = frozenset(
    "STORE_FAST STORE_NAME STORE_GLOBAL STORE_DEREF SWAP POP_TOP POP_ITER".split()
)

# A reading costs two to four system calls, so a line earns to be read less often:
# - A line after which memory was not less PATIENCE times in a row is steady: one system call tells that
#   nothing grew (Meter.still), and that nothing was given back is read once per LOSS_SPACING_NS.
# - A line that changed nothing PATIENCE times in a row is calm. While calm lines follow each other, one
#   question per SPACING_NS serves them all. In 10 us the kernel hands out at most some 100 KiB (it clears
#   pages at about 10 GB/s), so that is how far growth can be put on a neighbouring line.
# Every AUDIT-th time a line is read all the same (a prime: page sizes and loops go by powers of two). One
# that is then found to be neither loses its trust, and needs twice the PATIENCE to earn it again: it does not
# add up.
LOSS_SPACING_NS = 50_000
SPACING_NS = 10_000
PATIENCE = 64
MOST_PATIENCE = 8192
AUDIT = 31
clock = time.perf_counter_ns


class Row:
    """What one line did so far, and whether it has earned to be read less often."""

    __slots__ = ("calm", "clean", "count", "increment", "kept", "patience", "peak", "steady", "top", "usage")

    def __init__(self) -> None:
        self.count = self.increment = self.peak = self.usage = self.top = 0
        self.calm, self.clean = False, 0  # ends in a row without a change
        self.steady, self.kept = False, 0  # and without a loss
        self.patience = PATIENCE

    def judge(self, changed: bool, shrank: bool) -> None:
        """A reading when this line ended: so many without a change make it calm, without a loss steady."""
        if self.calm if changed else shrank and self.steady:
            self.patience = min(2 * self.patience, MOST_PATIENCE)
        self.clean = 0 if changed else self.clean + 1
        self.kept = 0 if shrank else self.kept + 1
        self.calm, self.steady = self.clean >= self.patience, self.kept >= self.patience


class Gauge:
    """A meter in use: its readings go to the line on top in every thread, peaks included."""

    __slots__ = ("asked", "look", "meter", "now", "shrank", "spare", "still", "tops", "watcher", "when")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.watcher = meter.start()
        self.look, self.still = meter.look, meter.still
        self.tops: dict[int, Open] = {}
        # Blocks for what the next reading makes, so that it touches no page before the program does.
        self.spare: object = None
        self.now = self.when = self.asked = 0  # the last reading, and the clock then and at the last question
        self.shrank = False  # whether it was less than the one before

    def close(self) -> None:
        self.meter.stop(self.watcher)

    def read(self) -> bool:
        """Set `now` to what is in use, tell peaks to the open lines; True where anything changed."""
        self.spare = None
        pair = self.look(self.watcher)
        now, high = pair
        before, self.now = self.now, now
        self.when = self.asked = clock()
        changed, self.shrank = now != before or high > now, now < before
        if changed and (high > now or len(self.tops) > 1):
            for top in list(self.tops.values()):
                if high > top.high:
                    top.high = high
        n = now + 256  # ints below are made once for all
        self.spare = (pair, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9, n + 10, n + 11)
        return changed

    def trusts(self, row: Row) -> bool:
        """Whether a steady line that ends needs no reading."""
        now = clock()
        since_read, since_asked = now - self.when, now - self.asked  # both live: see `spare`
        if since_read >= LOSS_SPACING_NS or not row.count % AUDIT:
            return False
        if not row.calm or since_asked >= SPACING_NS:
            if not self.still():
                return False
            del since_read, since_asked
            self.asked = now
            row.clean += 1  # nothing grew
            row.calm = row.clean >= row.patience
        if self.now > row.usage:
            row.usage = self.now
        return True


class Table:
    """The rows of one code object as one profiler sees them through one gauge."""

    def __init__(self, code: CodeType, gauge: Gauge) -> None:
        self.code = code
        self.gauge = gauge
        self.quiet = quiet_ranges(code)
        # a meter that looks closer at each line has rows of its own kind
        self.new_row: Callable[[], Row] = getattr(gauge.meter, "new_row", Row)
        self.rows: dict[int, Row] = {}
        self.entry = Row()  # what happens between two calls
        self.calls = self.reads = self.start = 0
        self.running: dict[int, Open] = {}  # thread -> the innermost frame of this code that runs on it


class Open:
    """A frame that runs, seen through one table. `also` is the same frame in the next table."""

    __slots__ = ("also", "base", "gauge", "high", "outer", "row", "same", "seen", "start", "table", "thread")

    def __init__(self, table: Table, also: Open | None) -> None:
        self.table = table
        self.gauge = table.gauge
        self.also = also
        self.row: Row | None = None
        self.outer: Open | None = None  # the line below on this thread, in any table of this gauge
        self.same: Open | None = None  # the frame below of this very function
        self.start = self.base = self.high = self.seen = 0
        self.thread = -1

    def enter(self) -> None:
        """The frame begins, or goes on after a yield or an await."""
        thread, gauge, table = get_ident(), self.gauge, self.table
        entry = table.entry
        entry.count += 1
        if not (entry.steady and gauge.trusts(entry)):
            entry.judge(gauge.read(), gauge.shrank)
        now, running = gauge.now, table.running
        self.outer, self.same, self.thread = gauge.tops.get(thread), running.get(thread), thread
        if self.same is not None and self.same.row is not None:
            self.same.row.increment += now - self.same.start
            self.same.start = now
        gauge.tops[thread] = running[thread] = self
        self.start = self.base = now
        self.high = self.seen = 0

    def line(self, number: int) -> None:
        """A line begins, and the one before it ends."""
        gauge, row = self.gauge, self.row
        begun = self.table.rows.get(number)
        if begun is None:
            begun = self.table.rows[number] = self.table.new_row()
        begun.count += 1
        if (
            row is not None
            and row.steady
            and self.start == gauge.now >= self.high  # no reading since, in a call, left more to write down
            and self.thread >= 0
            and gauge.trusts(row)
        ):
            self.row = begun
            return
        if self.thread < 0:  # thrown into, or entered before anybody looked
            self.enter()
        changed = gauge.read()
        self.table.reads += 1
        now = gauge.now
        self.row = begun
        if row is None:  # the first line begins where the call did, so that the increments add up
            return
        row.judge(changed, gauge.shrank)
        self.settle(row, now)
        self.start = self.base = now
        self.high = 0

    def settle(self, row: Row, now: int) -> None:
        """Write what happened since the line began into its row."""
        row.increment += now - self.start
        if now > row.usage:
            row.usage = now
        high = self.high
        if high < now:
            high = now
        if high > self.seen:
            self.seen = high
        if high > row.top:
            row.top = high
        if high - self.base > row.peak:
            row.peak = high - self.base

    def leave(self) -> None:
        """The frame ends, or pauses at a yield or an await."""
        thread, gauge, row = self.thread, self.gauge, self.row
        if thread < 0:
            return
        if row is not None:
            if not (row.steady and gauge.trusts(row)):
                row.judge(gauge.read(), gauge.shrank)
                self.table.reads += 1
            self.settle(row, gauge.now)
        outer, same, running = self.outer, self.same, self.table.running
        restore(gauge.tops, thread, outer)
        restore(running, thread, same)
        if outer is not None and self.seen > outer.high:
            outer.high = self.seen
        if same is not None:
            same.start = gauge.now
        self.outer = self.same = None
        self.thread = -1


def restore(stack: dict[int, Open], thread: int, below: Open | None) -> None:
    if below is None:
        stack.pop(thread, None)
    else:
        stack[thread] = below


class Frames:
    """Every frame that runs in a watched function, and the tables that want to know.

    `everywhere` are the tables of profilers that are switched on: any call counts. `expected` are those of
    decorated calls: only what runs on the thread, while the call is on it, counts.
    """

    def __init__(self) -> None:
        self.open: dict[int, Open] = {}  # id of a frame -> its state; an id, as a frame would stay alive
        self.everywhere: dict[CodeType, tuple[Table, ...]] = {}
        self.expected: dict[int, dict[CodeType, tuple[Table, ...]]] = {}

    def tables(self, code: CodeType) -> tuple[Table, ...]:
        expected = self.expected.get(get_ident())
        everywhere = self.everywhere.get(code, ())
        return everywhere + expected[code] if expected and code in expected else everywhere

    def begin(self, code: CodeType, frame: int) -> Open | None:
        """A frame of `code` starts. None where nobody watches this call."""
        state: Open | None = None
        for table in self.tables(code):
            state = Open(table, state)
            state.enter()
            if not table.calls:
                table.start = state.start
            table.calls += 1
        if state is not None:
            self.open[frame] = state
        return state

    def go_on(self, frame: int) -> None:
        state = self.open.get(frame)
        while state is not None:
            state.enter()
            state = state.also

    def pause(self, frame: int) -> None:
        state = self.open.get(frame)
        while state is not None:
            state.leave()
            state = state.also

    def end(self, frame: int) -> None:
        state = self.open.pop(frame, None)
        while state is not None:
            state.leave()
            state = state.also


@cache
def quiet_ranges(code: CodeType) -> Ranges:
    """The bytecode inside comprehensions that Python 3.12 and newer inline into the function.

    A comprehension is one step of its line. Seen as lines, each of its elements would be one.
    """
    ranges: list[tuple[int, int]] = []
    loops = begin = end = 0
    inside = False  # between the saving of the comprehension's names and the end of its outermost loop
    for step in dis.get_instructions(code):
        if end and step.opname not in AFTER_COMPREHENSION:
            ranges.append((begin, step.offset))
            end = 0
        if step.opname == "LOAD_FAST_AND_CLEAR" and not inside:
            inside, begin, loops = True, step.offset, 0
        elif inside and step.opname == "FOR_ITER":
            loops += 1
        elif inside and (step.opname == "END_ASYNC_FOR" or (step.opname == "END_FOR" and loops)):
            loops -= step.opname == "END_FOR"
            if not loops:
                inside, end = False, step.offset
    return tuple(ranges)
