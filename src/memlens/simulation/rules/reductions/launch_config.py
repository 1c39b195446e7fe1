"""How CUDA launches a reduction, and the scratch memory that follows from it. Pure arithmetic, no torch.

ATen/native/cuda/Reduce.cuh (`setReduceConfig`, `gpu_reduce_kernel`; read in torch 2.14.1): where each thread
would have to sum 256 values or more and the outputs do not fill the card, the input is split over several
blocks per output, which meet in a staging buffer and count themselves off in semaphores. The order of
dimensions that decides it is TensorIterator's (ATen/TensorIterator.cpp: `reorder_dimensions`,
`coalesce_dimensions`).

>>> Reduction(4, 4).scratch((4, 512, 1024), (524288, 1024, 1), (0, 1), Chip(108))
(16777216, 32)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

WARP = 32
INT_MAX = 2**31 - 1
MIN_VALUES_PER_THREAD = 16
MAX_VALUES_PER_THREAD = 256


@dataclass(frozen=True)
class Chip:
    """What the launch asks of the card: its multiprocessors, and the threads that one holds."""

    multiprocessors: int
    threads: int = 2048


@dataclass
class Axis:
    """One dimension of the iteration: its size, and its strides in bytes in the output and in the input."""

    size: int
    out: int
    into: int


@dataclass(frozen=True)
class Reduction:
    """What a kernel's template arguments say.

    `item_bytes`: an element of the input. `value_bytes`: what is accumulated (`arg_t`): 4 for a sum in
    float32, 16 for a variance or an index beside a value. `vector`: elements of one vectorised load along
    the reduced dimension (`input_vec_size`).
    """

    item_bytes: int
    value_bytes: int
    vector: int = 4
    max_threads: int = 512

    @lru_cache(maxsize=4096)  # noqa: B019 - a handful of reductions exist, one per kind and dtype
    def scratch(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        dims: tuple[int, ...],
        chip: Chip,
        out_item_bytes: int | None = None,
    ) -> tuple[int, int]:
        """(staging, semaphores) in bytes of the largest launch; (0, 0) where one block does an output.

        `strides` are the input's, in elements. `out_item_bytes`: an element of the output, as the input by
        default. An iteration that does not fit 32-bit offsets is cut in halves, which run one by one.
        """
        if not prod(shape):
            return 0, 0
        axes = _axes(shape, strides, set(dims), self.item_bytes, out_item_bytes or self.item_bytes)
        return max(self._launch(part, chip) for part in _halves(axes))

    def _launch(self, axes: list[Axis], chip: Chip) -> tuple[int, int]:
        outputs = prod(axis.size for axis in axes if axis.out)
        inputs = prod(axis.size for axis in axes) // outputs
        reduced = sum(axis.out == 0 for axis in axes)
        along = reduced == len(axes) or (reduced > 0 and axes[0].into < axes[reduced].into)
        if not axes:
            along = True
        wide, deep = (inputs, outputs) if along else (outputs, inputs)
        stride = axes[0 if along else reduced].into if axes else self.item_bytes
        out_vector = 1
        if stride == self.item_bytes:
            if along and wide >= 128 and reduced == 1:
                wide //= self.vector
            elif not along:
                out_vector = self._output_vector(axes, reduced)
                wide //= out_vector
        block_x, block_y = self._block(wide, deep, out_vector)
        step_input, step_output = (block_x, 1) if along else (1, block_x)
        split_rows = -(-inputs // step_input) >= min(block_y * 16, MAX_VALUES_PER_THREAD)
        if split_rows:
            step_input *= block_y
        else:
            step_output *= block_y
        per_thread = -(-inputs // step_input)
        grid = -(-(outputs // out_vector) // step_output)
        target = chip.multiprocessors * (chip.threads // (block_x * block_y))
        if not split_rows or per_thread < MAX_VALUES_PER_THREAD or grid > target:
            return 0, 0
        most, least = -(-per_thread // MIN_VALUES_PER_THREAD), -(-per_thread // MAX_VALUES_PER_THREAD)
        blocks = min(max(-(-target // grid), least), most)
        if blocks <= 1:
            return 0, 0
        staging = self.value_bytes * outputs * blocks * (1 if along else block_x * out_vector)
        return staging, 4 * grid

    def _output_vector(self, axes: list[Axis], reduced: int) -> int:
        """Outputs of one vectorised load: 4, 2 or 1, whatever divides the size and the other strides."""
        vector = 4
        others = [axis.into // self.item_bytes for number, axis in enumerate(axes) if number != reduced]
        for number in (axes[reduced].size, *others):
            while number % vector:
                vector //= 2
        return vector

    def _block(self, wide: int, deep: int, out_vector: int) -> tuple[int, int]:
        limit = self.max_threads // out_vector
        wide, deep = (_power_below(size) if size < limit else limit for size in (wide, deep))
        x = min(wide, WARP)
        y = min(deep, limit // x)
        return min(wide, limit // y), y


def _power_below(size: int) -> int:
    """The largest power of two that is at most `size`, and 1 for 0."""
    return 1 << max(size.bit_length() - 1, 0)


def _axes(
    shape: Sequence[int], strides: Sequence[int], dims: set[int], item_bytes: int, out_item_bytes: int
) -> list[Axis]:
    """The iteration as TensorIterator orders and merges it: reduced dimensions first, small strides first."""
    axes: list[Axis] = []
    out_stride = out_item_bytes
    for number in range(len(shape) - 1, -1, -1):
        size = shape[number]
        axes.append(Axis(size, 0 if number in dims else out_stride, strides[number] * item_bytes))
        out_stride *= 1 if number in dims else size
    _insertion_sort(axes)
    merged: list[Axis] = []
    for axis in axes:
        last = merged[-1] if merged else None
        if last is None or not _mergeable(last, axis):
            merged.append(axis)
        elif last.size == 1:
            merged[-1] = axis
        else:
            last.size *= axis.size
    return merged


def _mergeable(inner: Axis, outer: Axis) -> bool:
    if inner.size == 1 or outer.size == 1:
        return True
    return inner.size * inner.out == outer.out and inner.size * inner.into == outer.into


def _insertion_sort(axes: list[Axis]) -> None:
    """TensorIterator's sort, whose comparison may be undecided: then the order stays."""
    for number in range(1, len(axes)):
        moving = number
        for before in range(number - 1, -1, -1):
            order = _compare(axes[before], axes[moving])
            if order > 0:
                axes[before], axes[moving] = axes[moving], axes[before]
                moving = before
            elif order < 0:
                break


def _compare(first: Axis, second: Axis) -> int:
    """1 where the two should change places, -1 where not, 0 where it is undecided."""
    if (first.out == 0) != (second.out == 0):
        return 1 if second.out == 0 else -1
    for one, other in ((first.out, second.out), (first.into, second.into)):
        if one == 0 or other == 0:
            continue
        if one != other:
            return 1 if one > other else -1
        if first.size > second.size:
            return 1
    return 0


def _halves(axes: list[Axis]) -> list[list[Axis]]:
    """The iteration, cut until every operand's offsets in bytes fit 32 bits (`with_32bit_indexing`)."""
    out = 1 + sum((axis.size - 1) * axis.out for axis in axes)
    into = 1 + sum((axis.size - 1) * axis.into for axis in axes)
    if max(out, into, prod(axis.size for axis in axes)) <= INT_MAX:
        return [axes]
    extents = [(axis.size - 1) * max(axis.out, axis.into) for axis in axes]
    cut = max(range(len(axes) - 1, -1, -1), key=extents.__getitem__)
    parts = []
    for size in (axes[cut].size // 2, axes[cut].size - axes[cut].size // 2):
        part = [Axis(axis.size, axis.out, axis.into) for axis in axes]
        part[cut].size = size
        parts += _halves(part)
    return parts
