"""Convolution workspaces: the rules against what cuDNN answers, and what PyTorch keeps to itself.

`cudnn_answers.csv.gz` holds every 23rd of the answers that the rules are fitted to: cuDNN 9.24, asked for the
plans of a described device; `first_bytes` is the plan PyTorch takes, `largest_bytes` the largest of all.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")  # the room imports it; the rules themselves do not

from memlens.simulation.rules.convolution.workspace import DIRECTIONS, Convolution, Workspace, workspace
from memlens.units import MIB

pytestmark = pytest.mark.torch

ANSWERS = Path(__file__).with_name("cudnn_answers.csv.gz")
T4, A100, RTX3090, RTX4090, H100, B200 = (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0)
V100 = (7, 0)


def conv(
    arch: tuple[int, int],
    direction: Any = "forward",
    *,
    n: int = 32,
    c: int = 64,
    k: int = 64,
    size: int = 56,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    dtype: str = "float32",
    channels_last: bool = False,
    tf32: bool = True,
    benchmark: bool = False,
) -> Workspace:
    """A square 2d convolution with "same" padding; 64 -> 64, 3x3 at 56x56, batch 32 unless told."""
    out = -(-size // stride)
    return workspace(Convolution(
        arch, direction, dtype, channels_last, tf32, benchmark,
        (n, c, size, size), (k, c // groups, kernel, kernel), (n, k, out, out),
        (stride, stride), (1, 1), groups,
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "direction", "expected"),
    [
        (T4, "forward", 409_856),
        (T4, "backward_data", 409_856),
        (T4, "backward_weight", 0),
        (A100, "forward", 25_837_584),
        (A100, "backward_data", 51_527_696),
        (RTX3090, "forward", 25_837_584),
        (RTX4090, "forward", 25_837_584),
        (RTX4090, "backward_data", 51_527_696),
        (B200, "forward", 51_527_696),
        (V100, "forward", 409_856),
        (V100, "backward_weight", 0),
    ],
)
def test_first_choices_are_met_exactly(arch: tuple[int, int], direction: str, expected: int) -> None:
    """cuDNN's first choice for 64 -> 64, 3x3 at 56x56, batch 32, fp32 with TF32 allowed, to the byte."""
    assert conv(arch, direction).expected_bytes == expected


@pytest.mark.parametrize(
    ("arch", "truth"), [(A100, 54_641_215), (RTX3090, 52_412_843), (RTX4090, 59_720_375), (H100, 51_822_803)]
)
def test_weight_gradients_add_partial_sums(arch: tuple[int, int], truth: int) -> None:
    """Backward weight takes x + y + w and partial sums on top, which the range covers."""
    found = conv(arch, "backward_weight")
    assert found.expected_bytes == pytest.approx(truth, rel=0.15)
    assert found.low_bytes <= truth <= found.high_bytes


def test_without_tf32_only_the_weight_is_transformed() -> None:
    """fp32 without TF32 needs 100 * C * K + 256 bytes for 3x3, and nothing for 1x1."""
    assert conv(A100, tf32=False).expected_bytes == 409_856
    assert conv(A100, tf32=False, kernel=1).expected_bytes == 0
    assert conv(H100, tf32=False).expected_bytes == 0


def test_half_precision_copies_only_in_contiguous_layout() -> None:
    """fp16 contiguous is copied to channels_last and back (x + y + w); channels_last needs nothing."""
    assert conv(RTX4090, dtype="float16").expected_bytes == 25_690_112 + 73_728 + 16
    assert conv(RTX4090, dtype="bfloat16", channels_last=True).expected_bytes == 0


@pytest.mark.parametrize(
    ("direction", "c", "k", "size", "kernel", "stride", "measured"),
    [
        ("forward", 64, 64, 56, 3, 1, 410_112),
        ("forward", 128, 128, 28, 3, 1, 60_817_408),
        ("forward", 512, 512, 7, 3, 1, 56_623_104),
        ("forward", 128, 128, 56, 3, 2, 595_968),
        ("forward", 256, 256, 28, 3, 2, 36_833_792),
        ("forward", 512, 512, 14, 3, 2, 28_901_376),
        ("forward", 256, 128, 56, 1, 1, 0),
        ("backward_data", 256, 256, 14, 3, 1, 47_185_920),
        ("backward_data", 64, 64, 56, 3, 1, 410_112),
        ("backward_data", 256, 256, 28, 3, 2, 0),
        ("backward_data", 512, 128, 28, 1, 1, 51_649_536),
        ("backward_data", 256, 64, 56, 1, 1, 102_847_488),
        ("backward_data", 1024, 256, 14, 1, 1, 0),
        ("backward_data", 128, 512, 28, 1, 1, 0),
        ("backward_weight", 64, 64, 56, 3, 1, 116_195_328),
        ("backward_weight", 128, 128, 28, 3, 1, 60_817_408),
        ("backward_weight", 512, 512, 14, 3, 2, 9_481_728),
        ("backward_weight", 256, 64, 56, 1, 1, 0),
    ],
)
def test_a_recorded_v100_step(
    direction: str, c: int, k: int, size: int, kernel: int, stride: int, measured: int
) -> None:
    """ResNet-50 at batch 32 with cudnn.benchmark: as profiled, within 640 KB of block slack."""
    found = conv(V100, direction, c=c, k=k, size=size, kernel=kernel, stride=stride, benchmark=True)
    assert 0 <= measured - found.expected_bytes <= 655_360


def test_depthwise_runs_on_pytorchs_own_kernels() -> None:
    """A contiguous depthwise convolution never reaches cuDNN in fp32 and bf16; fp16 may."""
    assert conv(A100, groups=64) == Workspace(0, 0, 0, "PyTorch's own depthwise kernel")
    assert conv(A100, groups=64, dtype="float16").expected_bytes == 0
    assert conv(A100, groups=64, dtype="float16").high_bytes > 0
    assert conv(A100, groups=64, channels_last=True).expected_bytes == 0


def test_bfloat16_before_ampere_unfolds_one_sample() -> None:
    """cuDNN has no bf16 engine on a T4: slow_conv2d unfolds C * 9 rows of one sample in bf16."""
    assert conv(T4, dtype="bfloat16").expected_bytes == 2 * 64 * 9 * 56 * 56
    assert conv(T4, dtype="bfloat16", kernel=1).expected_bytes == 0


def test_a_transposed_convolution_swaps_roles() -> None:
    """ConvTranspose2d's forward is the backward data of the convolution from its output to its input."""
    small, large, w = (8, 128, 28, 28), (8, 64, 56, 56), (128, 64, 2, 2)
    arguments = ("float32", False, True, False)
    steps = ((2, 2), (1, 1), 1)
    transposed = workspace(Convolution(A100, "forward", *arguments, small, w, large, *steps, transposed=True))
    plain = workspace(Convolution(A100, "backward_data", *arguments, large, w, small, *steps))
    assert transposed == plain
    assert plain.expected_bytes == 4 * (8 * 128 * 28 * 28 + 8 * 64 * 56 * 56 + 128 * 64 * 4) + 16


def test_one_and_three_dimensions() -> None:
    """A 1d convolution is a 2d one of height 1; a 3d one follows the same copies."""
    one = workspace(Convolution(A100, "forward", "float16", False, True, False,
                                (8, 80, 3000), (384, 80, 3), (8, 384, 3000), (1,), (1,), 1))  # fmt: skip
    assert one.expected_bytes == 2 * (8 * 80 * 3000 + 8 * 384 * 3000 + 384 * 80 * 3) + 16
    x, w, y, ones = (2, 32, 16, 16, 16), (64, 32, 3, 3, 3), (2, 64, 16, 16, 16), (1, 1, 1)
    three = workspace(Convolution(A100, "forward", "float32", False, True, False, x, w, y, ones, ones, 1))
    assert three.expected_bytes == 4 * (2 * 32 * 16**3 + 64 * 32 * 27) + 16


def test_benchmark_widens_the_range() -> None:
    """cudnn.benchmark tries every plan, so that the range reaches further up while the choice stays."""
    plain, search = conv(A100), conv(A100, benchmark=True)
    assert search.expected_bytes == plain.expected_bytes
    assert search.high_bytes > 2 * plain.high_bytes


def test_the_largest_of_resnet50() -> None:
    """Batch 32 on an A100: the rules' largest workspace, 148 MiB, is within 6 % of cuDNN's 156."""
    shapes = [(3, 64, 224, 7, 2), (64, 256, 56, 1, 1), (256, 128, 56, 1, 1), (128, 128, 56, 3, 2)]
    largest = max(
        conv(A100, direction, c=c, k=k, size=size, kernel=kernel, stride=stride).expected_bytes
        for c, k, size, kernel, stride in shapes
        for direction in DIRECTIONS
    )
    assert largest / MIB == pytest.approx(156, rel=0.06)


def test_an_unknown_chip_takes_the_rules_of_the_one_below() -> None:
    """Jetson Orin (8.7) goes by 8.6, Thor (11.0) by 10.0, and Pascal (6.1) by Volta."""
    assert conv((8, 7)) == conv(RTX3090)
    assert conv((11, 0)) == conv(B200)
    assert conv((6, 1)) == conv(V100)


def test_the_rule_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can ask cuDNN replaces `choose`; it gets the whole call."""
    asked: list[Convolution] = []

    def answer(call: Convolution) -> Workspace:
        asked.append(call)
        return Workspace(7, 7, 7, "asked")

    monkeypatch.setattr("memlens.simulation.rules.convolution.workspace.choose", answer)
    assert conv(A100).rule == "asked"
    assert asked[0].kind == "3x3"


@cache
def answers() -> list[tuple[str, int, int, Workspace, Workspace]]:
    """Precision and layout, cuDNN's first and largest answer, and the rules without and with benchmark."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split("x")))

    rows = []
    with gzip.open(ANSWERS, "rt") as file:
        for row in csv.DictReader(file):
            major, minor = map(int, row["arch"].split("."))
            last, tf32 = row["channels_last"] == "1", row["tf32"] == "1"
            shapes = [numbers(row[name]) for name in ("x", "w", "y", "stride", "dilation")]
            found = [
                workspace(Convolution((major, minor), row["direction"], row["dtype"], last, tf32, benchmark,
                                      *shapes, int(row["groups"])))
                for benchmark in (False, True)
            ]  # fmt: skip
            precision = "half" if "16" in row["dtype"] else "tf32" if tf32 and major >= 8 else "exact"
            layout = "channels_last" if last else "contiguous"
            rows.append((f"{precision} {layout}", int(row["first_bytes"]), int(row["largest_bytes"]), *found))
    return rows


@pytest.mark.parametrize(
    ("group", "error"),
    [
        ("half contiguous", 0.15),
        ("half channels_last", 1.6),
        ("tf32 contiguous", 0.25),
        ("tf32 channels_last", 0.3),
        ("exact contiguous", 0.9),
        ("exact channels_last", 0.3),
    ],
)
def test_error_against_cudnn(group: str, error: float) -> None:
    """Over a sample of the answers the expected bytes are off by about what the docstring says."""
    rows = [row for row in answers() if row[0] == group]
    assert len(rows) > 40
    missed = sum(abs(first - rule.expected_bytes) for _, first, _, rule, _ in rows)
    assert missed <= error * sum(first for _, first, *_ in rows)


def test_the_range_covers_nine_in_ten() -> None:
    """Of the workspaces over 8 MiB nine in ten lie within the range, with and without benchmark."""
    plain = [first <= rule.high_bytes for _, first, _, rule, _ in answers() if first > 8 * MIB]
    search = [largest <= rule.high_bytes for _, _, largest, _, rule in answers() if largest > 8 * MIB]
    assert sum(plain) >= 0.9 * len(plain) > 90
    assert sum(search) >= 0.9 * len(search) > 90
    assert all(rule.low_bytes <= rule.expected_bytes <= rule.high_bytes for *_, rule, _ in answers())
