"""One convolution as cuDNN sees it, and the answer to how much scratch memory it takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

Direction = Literal["forward", "backward_data", "backward_weight"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward_data", "backward_weight")


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes of scratch memory for one call, and the rule that says so."""

    low_bytes: int
    expected_bytes: int
    high_bytes: int
    rule: str


class Convolution(NamedTuple):
    """One call on a card of compute capability `arch`: a tuple, because every call looks up its answer.

    Shapes are the module's: x (N, C, *space), w as stored, (K, C / groups, *kernel) or, if `transposed`,
    (C, K / groups, *kernel), y (N, K, *space); one, two or three dimensions of space.
    """

    arch: tuple[int, int]
    direction: Direction
    dtype: str
    channels_last: bool
    tf32: bool
    benchmark: bool
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool = False

    @property
    def itemsize(self) -> int:
        return {"float64": 8, "float32": 4}.get(self.dtype, 2)

    @property
    def is_half(self) -> bool:
        return self.itemsize == 2

    @property
    def is_depthwise(self) -> bool:
        """As ConvParams::is_depthwise in aten/src/ATen/native/Convolution.cpp."""
        channels = self.x_shape[1]
        return not self.transposed and self.groups == channels > 1 and self.w_shape[0] % channels == 0

    @property
    def kind(self) -> str:
        """Which column of the rules: grouped, stem (up to 4 input channels), 1x1, 3x3 or other."""
        kernel = self.w_shape[2:]
        if self.groups > 1:
            return "grouped"
        if self.w_shape[1] <= 4:
            return "stem"
        if prod(kernel) == 1:
            return "1x1"
        plain = max(self.stride) == 1 == max(self.dilation)
        return "3x3" if tuple(kernel) == (3, 3) and plain else "other"

    def as_run(self) -> Convolution:
        """The call that cuDNN gets: not transposed, and of two or three dimensions.

        A transposed convolution runs as the other direction with x and y exchanged; one dimension becomes two
        with a height of 1 (view1d_as_2d).
        """
        call = self
        if call.transposed:
            other: dict[Direction, Direction] = {"forward": "backward_data", "backward_data": "forward"}
            call = call._replace(
                direction=other.get(call.direction, call.direction),
                x_shape=call.y_shape,
                y_shape=call.x_shape,
            )
        if len(call.x_shape) == 3:
            x, w, y = ((*shape[:2], 1, shape[2]) for shape in (call.x_shape, call.w_shape, call.y_shape))
            stride, dilation = (1, *call.stride), (1, *call.dilation)
            call = call._replace(x_shape=x, w_shape=w, y_shape=y, stride=stride, dilation=dilation)
        return call
