"""What a tensor tracker saw, as the lines that users of trackers know: place, totals, `+` and `-` rows."""

from __future__ import annotations

from collections.abc import Iterator

from memlens.model.gap import Gap
from memlens.model.tensors import KINDS, LiveTensor, TensorGroup, TensorReport
from memlens.units import format_bytes, format_count, format_mib

NAMES = 3  # of a group, before "and 13 more"


def text(look: TensorReport, *, detail: bool = True, verbose: bool = False) -> str:
    """One `track()`; `detail` adds the rows, `verbose` the totals by kind."""
    lines = [_place(look)]
    if detail:
        rows = [("+", row) for row in look.came] + [("-", row) for row in look.gone]
        lines += columns([(sign, *cells(row)) for sign, row in rows])
    if look.gap is not None:
        lines.append("    " + equation(look.gap))
    if verbose:
        lines += [
            f"    {category.label}: {format_mib(size)}" for category, size in look.by_category.items() if size
        ]
    if look.note:
        lines.append(f"    {look.note}")
    return "\n".join(lines) + "\n"


def _place(look: TensorReport) -> str:
    function = "" if look.function == "<module>" else f" in {look.function}"
    line = f"At {look.file} : line {look.line}{function}"
    line += f"  Total Tensor Used Memory: {format_mib(look.tensor_bytes)}"
    if look.allocated_bytes is not None:
        line += f"  Total Allocated Memory: {format_mib(look.allocated_bytes)}"
    if look.peak_bytes is not None:
        line += f" (peak {format_mib(look.peak_bytes)})"
    return f"{line}  [{look.device}, {format_count(look.tensors)} storages]"


def cells(row: TensorGroup) -> tuple[str, ...]:
    """Count and shape, memory, kind, dtype, names."""
    notes = [row.kind]
    if row.view:
        notes.append("a view, counted with its whole storage")
    shown = ", ".join(row.names[:NAMES])
    if len(row.names) > NAMES:
        shown += f" and {len(row.names) - NAMES} more"
    shape = f"({row.shape[0]},)" if len(row.shape) == 1 else str(row.shape)
    return f"{row.count} * Size:{shape}", f"Memory: {_size(row.bytes)}", ", ".join(notes), row.dtype, shown


def _size(size: int) -> str:
    """MiB for what is large enough to show in hundredths."""
    return format_mib(size) if size >= 10 << 10 else format_bytes(size)


def columns(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Rows of cells, padded so that their columns align."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        joined = " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield joined.rstrip(" |")


def equation(gap: Gap) -> str:
    """`on the card 1,012.00 MiB = tensors 548.05 + cached, unused 20.00 + ...`, in MiB."""
    parts = " + ".join(
        f"{part.label} {format_mib(part.bytes).removesuffix(' MiB')}" for part in gap.parts()
    ).replace("+ -", "- ")
    if gap.used_bytes is None:
        return f"reserved {format_mib(gap.reserved_bytes)} = {parts}; on the card n/a: {gap.reason}"
    why = f" (apart n/a: {gap.reason})" if gap.process_bytes is None else ""
    return f"on the card {format_mib(gap.used_bytes)} = {parts}{why}"


def gap_table(gap: Gap) -> str:
    """The gap between tensors and nvidia-smi, a part a line, and the sum that the driver gives."""
    rows = [(part.label, format_mib(part.bytes)) for part in gap.parts()]
    if gap.used_bytes is None:
        rows.append(("reserved by PyTorch", format_mib(gap.reserved_bytes)))
        rows.append(("in use on the card", f"n/a: {gap.reason}"))
    else:
        rows.append(("in use on the card (nvidia-smi)", format_mib(gap.used_bytes)))
    width, numbers = max(len(label) for label, _ in rows), max(len(row[1]) for row in rows[:-1])
    lines = [f"{label.ljust(width)}  {size.rjust(numbers)}" for label, size in rows]
    lines += [f"  workspaces: {said}" for said in gap.workspaces]
    if gap.used_bytes is not None and gap.process_bytes is None:
        lines.append(f"  context and other processes apart: n/a: {gap.reason}")
    return "\n".join(lines) + "\n"


def change(size: int) -> str:
    """What a block left behind, in words."""
    return f"{format_bytes(size, sign=True)} of tensors left behind" if size else "no tensors left behind"


def listing(device: str, tensors: list[LiveTensor], shared: dict[str, list[str]]) -> str:
    """Every storage of a device, a line each: name, shape, bytes; and the total."""
    rows: list[tuple[str, ...]] = []
    for tensor in tensors:
        others = shared.get(tensor.name)
        name = tensor.name or KINDS.get(tensor.category, "tensor")
        rows.append(
            (f"{name} (= {', '.join(others)})" if others else name, str(tensor.shape), _size(tensor.bytes))
        )
    total = sum(tensor.bytes for tensor in tensors)
    head = f"Storages on {device}\n"
    return head + "".join(f"{line}\n" for line in columns(rows)) + f"Total: {format_mib(total)}\n\n"
