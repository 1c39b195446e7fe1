"""What torchsummary or torchinfo would print, next to the true figures, and why they differ, as text."""

from __future__ import annotations

from memlens.render.summaries.layers import size, wrap_lines
from memlens.summaries.other_tools import Like
from memlens.summaries.summary import Summary
from memlens.units import format_count, format_mib


def to_like(summary: Summary, tool: str, width: int | None = None) -> str:
    """What `tool` would print, next to the true figures, and for every output why they differ."""
    like = summary.likes[tool]
    totals = summary.totals
    unit = "2^20" if tool == "torchsummary" else "10^6"
    pairs = (
        (f"What {tool} prints (MB = {unit} bytes)", "What it is in memory"),
        (f"Input size (MB): {like.input_mb:.2f}", f"{format_mib(totals.input_bytes)} batch"),
        (
            f"Forward/backward pass size (MB): {like.forward_backward_mb:.2f}",
            f"{format_mib(totals.kept_bytes, precision=3)} kept for backward",
        ),
        (f"Params size (MB): {like.params_mb:.2f}", f"{format_mib(totals.param_bytes)} parameters"),
        (
            f"Estimated Total Size (MB): {like.total_mb:.2f}",
            f"{format_mib(total_bytes(summary))} all in all, each once",
        ),
    )
    lines = [
        f"Total params: {format_count(totals.params)}",
        "",
        *(f"{theirs:<44}{ours}" for theirs, ours in pairs),
        "",
        *stop_notes(like),
        "Gradients, optimizer states and temporaries of a step come on top: memlens predict.",
        "",
    ]
    return "\n".join([*wrap_lines(lines, width), *differences(like, width)])


def stop_notes(like: Like) -> list[str]:
    if like.stops is None:
        return []
    where = like.stops or "the model"
    return [
        f"{like.tool} itself stops at {where}, which takes or returns something nested: "
        "these are the numbers of its rules.",
        "",
    ]


def total_bytes(summary: Summary) -> int:
    """Parameters, buffers, batch and what is kept, where the batch and buffers that are kept count once."""
    totals = summary.totals
    twice = sum(k.bytes for row in summary.rows for k in row.kept if k.what in ("input", "buffer"))
    return totals.param_bytes + totals.buffer_bytes + totals.input_bytes + totals.kept_bytes - twice


def differences(like: Like, width: int | None) -> list[str]:
    """One line an output: what the tool counts, what of it is kept, why."""
    lines = [("output of", f"{like.tool} counts", "kept", "why")]
    lines += (
        (d.path or "(the model)", size(d.counted_bytes), size(d.kept_bytes), d.why) for d in like.differences
    )
    sums = [sum(getattr(d, name) for d in like.differences) for name in ("counted_bytes", "kept_bytes")]
    lines.append(("sum", size(sums[0]), size(sums[1]), ""))
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return wrap_lines(
        (
            f"{path:<{widths[0]}}  {counted:>{widths[1]}}  {kept:>{widths[2]}}  {why}".rstrip()
            for path, counted, kept, why in lines
        ),
        width,
        indent=sum(widths) + 6,
    )
