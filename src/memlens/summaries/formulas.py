"""How each number of a row comes about, with the row's own values: what people otherwise compute by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from memlens.summaries.nodes import KeptTensor, Node, Shape


@dataclass(frozen=True, slots=True)
class Formula:
    """`what` (params, output, kept or macs) is `result` because of `values`, which `symbols` explain.

    >>> Formula("params", "C_in × C_out × K × K + C_out", "3 × 64 × 3 × 3 + 64", 1792).check()
    True
    """

    what: str
    symbols: str
    values: str
    result: int

    def check(self) -> bool:
        """Whether `values`, worked out, are `result`."""
        return _evaluate(self.values) == self.result


def _evaluate(values: str) -> int:
    """Sums of products of whole numbers, brackets around sums: all that a formula is made of."""
    text = values.replace("×", "*").replace(",", "").replace(" B", "")
    if set(text) - set("0123456789*+() "):
        raise ValueError(f"not a formula of whole numbers: {values}")
    result: int = eval(text, {"__builtins__": {}})
    return result


def times(*factors: Any) -> str:
    return " × ".join(str(factor) for factor in factors)


def formulas_of(node: Node, params: list[nn.Parameter], kept: tuple[KeptTensor, ...]) -> tuple[Formula, ...]:
    """Parameters, MACs, output and kept bytes of a row, each only where there is something to explain."""
    formulas = [*_params(node, params), *_macs(node)]
    formulas += _output(node)
    formulas += (
        Formula("kept", f"{_letters(k.shape)} × bytes, {_origin(k, node)}",
                times(*k.shape, k.bytes // math.prod(k.shape)), k.bytes)
        for k in kept
        if k.bytes and k.bytes % max(math.prod(k.shape), 1) == 0
    )  # fmt: skip
    return tuple(formulas)


_NAMES = {1: "N", 2: "N × C", 3: "N × L × C", 4: "N × C × H × W", 5: "N × C × D × H × W"}


def _letters(shape: Shape) -> str:
    return _NAMES.get(len(shape), "sizes" if shape else "1")


def _origin(kept: KeptTensor, node: Node) -> str:
    """Whose tensor it is that the row keeps."""
    known = {"input": "the batch", "buffer": "a buffer", "host": "on the host", "held": "held by the graph"}
    if kept.what in known:
        return known[kept.what]
    if kept.source is None:
        return f"{kept.dtype}, made for its backward"
    return "its output" if kept.source == node.path else f"the output of {kept.source or 'the model'}"


def _output(node: Node) -> Iterator[Formula]:
    """The output's bytes, where one call made one new tensor."""
    if len(node.outputs) != 1 or not node.output_bytes:
        return
    shape, dtype = node.outputs[0]
    size = math.prod(shape) * dtype.itemsize
    if size * node.calls != node.output_bytes:
        return
    calls = (node.calls,) if node.calls > 1 else ()
    symbols = f"{_letters(shape)} × bytes" + (" × calls" if calls else "")
    yield Formula("output", symbols, times(*shape, dtype.itemsize, *calls), node.output_bytes)


# parameters ------------------------------------------------------------------------------------------------

Explain = Callable[[Any], tuple[str, str]]  # a module -> symbols, values


def _conv(module: Any) -> tuple[str, str]:
    first = "C_in" if module.groups == 1 else "C_in / groups"
    symbols = times(first, "C_out", *("K" for _ in module.kernel_size))
    values = times(module.in_channels // module.groups, module.out_channels, *module.kernel_size)
    return _with_bias(module, symbols, values, "C_out", module.out_channels)


def _with_bias(module: Any, symbols: str, values: str, name: str, size: int) -> tuple[str, str]:
    if module.bias is None:
        return symbols, values
    return f"{symbols} + {name}", f"{values} + {size}"


def _linear(module: Any) -> tuple[str, str]:
    values = times(module.in_features, module.out_features)
    return _with_bias(module, "in × out", values, "out", module.out_features)


def _batch_norm(module: Any) -> tuple[str, str]:
    return "scale and shift: 2 × C", times(2, module.num_features)


def _layer_norm(module: Any) -> tuple[str, str]:
    two = getattr(module, "bias", None) is not None
    shape = module.normalized_shape
    return ("scale and shift: 2 × C", times(2, *shape)) if two else ("scale: C", times(*shape))


def _group_norm(module: Any) -> tuple[str, str]:
    return "scale and shift: 2 × C", times(2, module.num_channels)


def _embedding(module: Any) -> tuple[str, str]:
    return "rows × width", times(module.num_embeddings, module.embedding_dim)


def _attention(module: Any) -> tuple[str, str]:
    width = module.embed_dim
    if module.in_proj_weight is None or module.bias_k is not None:
        return "", ""
    if module.in_proj_bias is None:
        return "query, key, value: 3 × E × E", times(3, width, width)
    return "query, key, value: 3 × E × E + 3 × E", f"{times(3, width, width)} + {times(3, width)}"


def _rnn(module: Any) -> tuple[str, str]:
    """Each layer and direction: gates × hidden × (input + hidden) and two biases."""
    gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1)
    hidden, out = module.hidden_size, module.proj_size or module.hidden_size
    directions = 2 if module.bidirectional else 1
    parts = []
    for layer in range(module.num_layers):
        wide = module.input_size if layer == 0 else out * directions
        extra = " + 2" if module.bias else ""
        one = f"{gates} × {hidden} × ({wide} + {out}{extra})"
        projection = f" + {out} × {hidden}" if module.proj_size else ""
        parts.append(f"{directions} × ({one}{projection})" if directions > 1 or projection else one)
    symbols = "gates × H × (input + H" + (" + 2)" if module.bias else ")") + ", each layer and direction"
    return symbols, " + ".join(parts)


_PARAMS: dict[type[nn.Module], Explain] = {
    nn.modules.conv._ConvNd: _conv,
    nn.Linear: _linear,
    nn.modules.batchnorm._BatchNorm: _batch_norm,
    nn.modules.instancenorm._InstanceNorm: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _embedding,
    nn.MultiheadAttention: _attention,
    nn.RNNBase: _rnn,
}


def _params(node: Node, params: list[nn.Parameter]) -> Iterator[Formula]:
    """The layer's own formula where it gives the true number, else the shapes of its parameters."""
    count = sum(p.numel() for p in params)
    if not count:
        return
    for kind, explain in _PARAMS.items():
        if isinstance(node.module, kind):
            symbols, values = explain(node.module)
            if values and _evaluate(values) == count:
                yield Formula("params", symbols, values, count)
                return
    yield Formula(
        "params", "sizes of its parameters", " + ".join(times(*p.shape or (1,)) for p in params), count
    )


# multiply-accumulates --------------------------------------------------------------------------------------


def _macs(node: Node) -> Iterator[Formula]:
    if not node.macs or not node.outputs:
        return
    values = _mac_values(node)
    if values is None:
        return
    symbols, text = values
    if node.calls > 1 and _evaluate(text) * node.calls == node.macs:
        symbols, text = f"{symbols} × calls", f"{text} × {node.calls}"
    if _evaluate(text) == node.macs:
        yield Formula("macs", symbols, text, node.macs)


def _mac_values(node: Node) -> tuple[str, str] | None:
    module, out = node.module, node.outputs[0][0]
    if isinstance(module, nn.modules.conv._ConvNd):
        rest = module.weight.shape[1:]
        if module.transposed:
            return "every input × C_out / groups × K × K", times(*node.inputs[0][0], *rest)
        return "every output × C_in / groups × K × K", times(*out, *rest)
    if isinstance(module, nn.Linear):
        return "every output × in", times(*out, module.in_features)
    if isinstance(module, nn.RNNBase):
        weights = [w for w in module.parameters() if w.dim() == 2]
        positions = math.prod(node.inputs[0][0][:-1])
        return "positions × every weight", times(positions, sum(w.numel() for w in weights))
    return _operator_macs(node.type, [shape for shape, _ in node.inputs], out)


def _operator_macs(name: str, inputs: list[Shape], out: Shape) -> tuple[str, str] | None:
    if name == "scaled_dot_product_attention" and len(inputs) >= 3:
        query, key, value = inputs[:3]
        return (
            "N × heads × queries × keys × (width of keys + of values)",
            f"{times(*query[:-1], key[-2])} × ({key[-1]} + {value[-1]})",
        )
    if name in ("matmul", "bmm", "linear", "mm", "rmatmul") and len(inputs) >= 2:
        return "every output × inner", times(*out, inputs[0][-1])
    return None
