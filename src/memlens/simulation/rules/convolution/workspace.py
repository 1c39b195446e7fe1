"""How much scratch memory a convolution takes while it runs.

cuDNN's kernels want the input, the weight or the output in another layout, a transform of the weight, or
partial sums; PyTorch takes that workspace from its allocator for the length of one call
(aten/src/ATen/native/cudnn/Conv_v8.cpp). How much is cuDNN's choice, and these rules stand in for it where it
cannot be asked. They are fitted to what cuDNN 9.24 answers for a described device: 56,672 answers for about
350 shapes (ResNet-50, VGG16, a U-Net, Inception, ResNeXt, Stable Diffusion, Whisper, 3d, depthwise; batch 1
to 128) on a T4, A100, RTX 3090, 4090, 5090, H100 and B200, in three directions, four precisions, two layouts.
Error of `expected_bytes` as sum |error| / sum of the answers, all cards together, and how many of the answers
over 8 MiB lie within `high_bytes`:

    fp16, bf16      contiguous      0.07   0.95   copies of x + y + w; 1x1 is the uncertain part
    fp16, bf16      channels_last   1      0.94   nothing is expected: the answers are 2-8 % of the above
    fp32 with TF32  contiguous      0.13   0.96   copies too; RTX cards often take none for 1x1
    fp32 with TF32  channels_last   0.18   0.97   half the copies up to Ada, nothing on Hopper and B200
    fp32            contiguous      0.56   0.97   Winograd's transform of the weight, or nothing: below 0.4
                                                  except in backward weight on Hopper, which is not expected
    fp32            channels_last   0.16   0.92   copies

`low_bytes` is 0: another version of cuDNN chooses differently (9.10 against 9.24: up to 58 % of the bytes),
and where memory is short PyTorch takes the next plan, often one without a workspace. `benchmark` lets PyTorch
try every plan once: `high_bytes` is then the largest of them, in nine shapes of ten.

`workspace` asks `choose`, which may be replaced by a function that asks cuDNN itself.

>>> call = Convolution((8, 0), "forward", "float32", channels_last=False, tf32=True, benchmark=False,
...                    x_shape=(32, 64, 56, 56), w_shape=(64, 64, 3, 3), y_shape=(32, 64, 56, 56),
...                    stride=(1, 1), dilation=(1, 1), groups=1)
>>> workspace(call).expected_bytes  # x + w + 16
25837584
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

from memlens.devices.generations import generation_of
from memlens.simulation.rules.convolution.call import DIRECTIONS, Convolution, Direction, Workspace

__all__ = ["DIRECTIONS", "Convolution", "Direction", "Workspace", "choose", "rules", "workspace"]

# A rule is what the copies hold: any of x, y, w; "winograd", the transform of the weight; or 0. After it,
# the kinds of convolution that differ. One rule for each direction: forward, backward data, backward weight.
Rules = tuple[str, str, str]
_NONE: Rules = ("0", "0", "0")
_FUSED_WINOGRAD: Rules = ("0 3x3=winograd", "0 3x3=winograd", "0")
_HALF: Rules = ("xyw stem=0", "xyw", "xyw")
_TF32_AMPERE_LAST: Rules = ("xw", "yw", "xyw stem=0 1x1=0")

# (precision, channels_last) -> generation -> rules. A card of another generation takes the one below it.
_GENERATIONS = ((7, 0), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
_RULES: dict[tuple[str, bool], dict[tuple[int, int], Rules]] = {
    ("half", False): dict.fromkeys(_GENERATIONS, _HALF) | {
        (10, 0): ("xyw stem=yw", "xyw", "xyw"),
        (12, 0): ("xyw stem=yw", "xyw", "xyw"),
    },
    ("half", True): dict.fromkeys(_GENERATIONS, _NONE),
    ("tf32", False): {
        (8, 0): ("xw stem=0 grouped=xyw", "xyw stem=0", "xyw stem=0"),
        (8, 6): ("xw stem=0 grouped=0", "xyw stem=0 grouped=0 1x1=xw", "xyw stem=0 1x1=0"),
        (8, 9): ("xw stem=0 grouped=0 1x1=0", "xyw stem=0 grouped=0 1x1=0", "xyw stem=0 grouped=0 1x1=0"),
        (9, 0): ("xyw stem=0 1x1=xw", "xyw stem=0", "xyw stem=0"),
        (10, 0): ("xyw stem=xw", "xyw", "xyw stem=0"),
        (12, 0): ("xw stem=0 grouped=0", "xyw stem=0 grouped=0", "xyw stem=0 grouped=0 1x1=0"),
    },
    ("tf32", True): {
        (8, 0): ("xw", "yw", "xyw stem=0"),
        (8, 6): _TF32_AMPERE_LAST,
        (8, 9): ("xw 1x1=0", "yw", "xyw stem=0 1x1=0"),
        (9, 0): ("0", "0 stem=yw", "0 grouped=xyw"),
        (10, 0): ("0 stem=xw grouped=xw", "0 grouped=yw", "0 grouped=xyw"),
        (12, 0): ("xw grouped=0", "yw", "xyw stem=0 1x1=0 grouped=yw"),
    },
    ("exact", False): dict.fromkeys(((7, 0), (8, 0), (8, 6), (8, 9)), _FUSED_WINOGRAD)
    | dict.fromkeys(((9, 0), (10, 0), (12, 0)), _NONE),
    ("exact", True): {
        (7, 0): ("0 3x3=xyw", "xyw 1x1=0 grouped=yw", "0 grouped=yw"),
        (8, 0): ("0 3x3=xyw", "xyw grouped=yw", "0 grouped=yw"),
        (9, 0): ("xyw stem=0 grouped=0", "xyw grouped=yw", "0 grouped=yw"),
        (10, 0): ("0 3x3=xyw 1x1=xyw", "xyw grouped=0", "0 grouped=yw"),
        (12, 0): ("0", "xyw grouped=yw", "0 grouped=yw"),
    },
}  # fmt: skip

# `high_bytes` in copies of x + y + w, (forward, backward data, backward weight): some plans add a transform
# of the weight, backward weight adds the partial sums of a split reduction. Contiguous fp32 without TF32
# takes copies only since Hopper.
_HIGH: dict[tuple[str, bool], tuple[float, float, float]] = {
    ("half", False): (1.4, 1.2, 1.6),
    ("half", True): (1.6, 1.0, 1.7),
    ("tf32", False): (1.25, 1.2, 1.8),
    ("tf32", True): (1.2, 1.1, 1.8),
    ("exact", False): (0.15, 0.15, 0.15),
    ("exact", True): (2.2, 1.5, 1.0),
}
_HIGH_EXACT_SINCE_HOPPER = (1.0, 1.0, 1.0)
# the largest plan that cudnn.benchmark tries, in nine shapes of ten
_BENCHMARK_SEARCH = (3.4, 4.4, 5.0)
_DEPTHWISE_HIGH = 5.0  # backward weight of depthwise, channels_last
_ALIGNMENT_SLACK = 16  # bytes beside the copies, A100


def _precision(call: Convolution) -> str:
    """half, tf32 (fp32 that may go to tensor cores, which Turing's cannot take) or exact."""
    if call.is_half:
        return "half"
    return "tf32" if call.dtype == "float32" and call.tf32 and generation_of(call.arch).tf32 else "exact"


def _rule(call: Convolution) -> str:
    """The cell of `_RULES` for a call."""
    table = _RULES[_precision(call), call.channels_last]
    generation = max((known for known in table if known <= call.arch), default=min(table))
    default, *others = table[generation][DIRECTIONS.index(call.direction)].split()
    return dict(cell.split("=") for cell in others).get(call.kind, default)


def _copies(call: Convolution, which: str) -> int:
    """Bytes of copies of x, y and w, channels rounded up to what tensor cores take (4 in fp32, 8 in half)."""
    unit = 8 if call.is_half else 4

    def padded(channels: int) -> int:
        return ceil(channels / unit) * unit if call.groups == 1 else channels

    (n, c, *x_space), (k, c_group, *kernel) = call.x_shape, call.w_shape
    sizes = {
        "x": n * padded(c) * prod(x_space),
        "y": n * padded(k) * prod(call.y_shape[2:]),
        "w": padded(k) * padded(c_group) * prod(kernel),
    }
    return call.itemsize * sum(sizes[name] for name in which) + _ALIGNMENT_SLACK


def _rule_bytes(call: Convolution, rule: str) -> int:
    if rule == "0":
        return 0
    if rule == "winograd":  # 25/9 of the weight, fp32: 409,856 for 64 -> 64, the same on T4, A100, 4090
        return 100 * call.w_shape[0] * call.w_shape[1] + 256
    return _copies(call, rule)


def _high_bytes(call: Convolution) -> int:
    way = DIRECTIONS.index(call.direction)
    factors = _HIGH[_precision(call), call.channels_last]
    if factors is _HIGH["exact", False] and call.arch >= (9, 0):
        factors = _HIGH_EXACT_SINCE_HOPPER
    factor = max(factors[way], _BENCHMARK_SEARCH[way]) if call.benchmark else factors[way]
    return int(factor * _copies(call, "xyw"))


def fitted(call: Convolution) -> Workspace:
    """The table of rules, for cards from Turing on."""
    rule = _rule(call)
    expected = _rule_bytes(call, rule)
    names = {"0": "no workspace", "winograd": "Winograd transform of the weight"}
    name = names.get(rule, "copies of " + " + ".join(rule))
    return Workspace(0, expected, max(_high_bytes(call), expected), name)


def depthwise_channels_last(call: Convolution) -> Workspace:
    """cuDNN's depthwise kernels: only the partial sums of backward weight on tensor cores.

    Those are spread from nothing to five copies of x + y + w; one copy is expected. RTX cards take none in
    TF32.
    """
    copies = _copies(call, "xyw")
    large_chips = (8, 0), (9, 0), (10, 0)
    sums = call.is_half or (_precision(call) == "tf32" and call.arch in large_chips)
    if call.direction != "backward_weight" or not sums:
        return Workspace(0, 0, copies, "no workspace")
    return Workspace(0, copies, int(_DEPTHWISE_HIGH * copies), "partial sums of a depthwise weight gradient")


def volta_benchmark(call: Convolution) -> Workspace:
    """What cuDNN 8 took in a recorded ResNet-50 step (batch 32, V100, cudnn.benchmark).

    3x3 with stride 1 is Winograd F(4x4, 3x3), 144 * (C*K + N * tiles * (C + K)) bytes, except in forward and
    backward data of up to 64 channels, where only the weight is transformed. Forward 3x3 with stride 2, from
    256 channels on, unfolds its input or copies x + y + 2w, whichever is less. Backward data of a 1x1 copies
    x + w at 28x28 and above for up to 256 output channels. The others hold the weight or nothing.
    """
    (n, c, *space), (k, _, *kernel), size = call.x_shape, call.w_shape, call.itemsize
    x, w, y = (size * prod(shape) for shape in (call.x_shape, call.w_shape, call.y_shape))
    expected, rule = 0, "no workspace"
    if call.kind == "3x3" and (min(c, k) > 64 or call.direction == "backward_weight"):
        tiles = n * prod(ceil(length / 4) for length in space)
        expected, rule = 144 * (c * k + tiles * (c + k)), "Winograd F(4x4, 3x3)"
    elif call.kind == "3x3":
        expected, rule = _rule_bytes(call, "winograd"), "Winograd transform of the weight"
    elif call.direction == "backward_data" and call.kind == "1x1" and prod(space) >= 28 * 28 and k <= 256:
        expected, rule = x + w + (21_504 if prod(space) >= 56 * 56 else 7_168), "copies of x + w"
    elif tuple(kernel) == (3, 3) and call.kind == "other" and call.direction == "forward" and c >= 256:
        unfolded = size * n * c * 9 * prod(call.y_shape[2:])
        expected, rule = min(unfolded, x + y + 2 * w + 2_560), "unfolded input or copies of x + y + 2w"
    elif tuple(kernel) == (3, 3) and call.kind == "other" and call.direction != "backward_data":
        expected, rule = w, "copy of w"
    return Workspace(0, expected, max(expected, _copies(call, "xyw")), rule)


def without_cudnn(call: Convolution) -> Workspace | None:
    """Calls that PyTorch keeps to itself, or None.

    Depthwise convolutions in contiguous layout have kernels of their own without a workspace (use_cudnn_
    depthwise in aten/src/ATen/native/Convolution.cpp; fp16 may still go to cuDNN). bfloat16 below compute
    capability 8.0 has no cuDNN engine: slow_conv2d unfolds one sample at a time.
    """
    if call.is_depthwise and not call.channels_last:
        high = _copies(call, "xyw") if call.dtype == "float16" else 0
        return Workspace(0, 0, high, "PyTorch's own depthwise kernel")
    if call.dtype == "bfloat16" and call.arch < (8, 0):
        kernel = prod(call.w_shape[2:])
        plain = kernel == 1 == max(call.stride)
        unfolded = 0 if plain else 2 * call.x_shape[1] * kernel * prod(call.y_shape[2:])
        return Workspace(unfolded, unfolded, unfolded, "one unfolded sample")
    return None


def rules(call: Convolution) -> Workspace:
    """The workspace by rule: PyTorch's own kernels first, then Volta under benchmark, then the fit."""
    own = without_cudnn(call)
    if own is not None:
        return own
    if call.benchmark and call.arch < (7, 5) and call.dtype == "float32" and not call.channels_last:
        return volta_benchmark(call)
    if call.is_depthwise:
        return depthwise_channels_last(call)
    return fitted(call)


choose: Callable[[Convolution], Workspace] = rules


def workspace(call: Convolution) -> Workspace:
    """Scratch bytes of one convolution while it runs.

    With `benchmark`, `high_bytes` is what the search at the first sight of a shape takes; it gives the memory
    back afterwards.
    """
    return choose(call.as_run())
