"""Running out: the numbers, and the text that PyTorch makes of them."""

from __future__ import annotations

from memlens.units import GIB, KIB, MIB


class DeviceFull(Exception):
    """No block holds the request, and the device has no room for another segment.

    The figures are those of PyTorch's message: `segment_bytes` is the segment that was wanted (2 MiB for
    any small request, 20 MiB up to 10 MiB), `asked_bytes` what the code asked for, `process_bytes` what
    the whole process holds: all that is not free, as the simulated process has the card to itself.
    """

    def __init__(
        self,
        *,
        asked_bytes: int,
        segment_bytes: int,
        total_bytes: int,
        free_bytes: int,
        allocated_bytes: int,
        reserved_bytes: int,
        process_bytes: int,
        allowed_bytes: int | None = None,
        expandable_segments: bool = False,
    ) -> None:
        self.asked_bytes = asked_bytes
        self.segment_bytes = segment_bytes
        self.total_bytes = total_bytes
        self.free_bytes = free_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
        self.allowed_bytes = allowed_bytes
        self.expandable_segments = expandable_segments
        self.process_bytes = process_bytes
        super().__init__(message(self))


def message(error: DeviceFull, device: int = 0) -> str:
    """The text of `torch.OutOfMemoryError` (torch 2.14.1, DeviceCachingAllocator::malloc).

    The advice to use expandable segments is left out where they are on already.
    """
    allowed = advice = ""
    if error.allowed_bytes is not None:
        allowed = f"{format_size(error.allowed_bytes)} allowed; "
    if not error.expandable_segments:
        advice = (
            " If reserved but unallocated memory is large try setting"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
            "  See documentation for Memory Management "
            " (https://docs.pytorch.org/docs/stable/notes/cuda.html"
            "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        )
    return (
        f"CUDA out of memory. Tried to allocate {format_size(error.segment_bytes)}. "
        f"GPU {device} has a total capacity of {format_size(error.total_bytes)} "
        f"of which {format_size(error.free_bytes)} is free. Including non-PyTorch memory, this process has "
        f"{format_size(error.process_bytes)} memory in use. {allowed}"
        f"Of the allocated memory {format_size(error.allocated_bytes)} is allocated by PyTorch, "
        f"and {format_size(error.reserved_bytes - error.allocated_bytes)} "
        f"is reserved by PyTorch but unallocated.{advice}"
    )


def format_size(size: int) -> str:
    """Bytes as PyTorch's messages print them (c10/core/CachingDeviceAllocator.h, format_size).

    >>> format_size(1024), format_size(20 << 20), format_size(3 << 30)
    ('1024 bytes', '20.00 MiB', '3.00 GiB')
    """
    if size <= KIB:
        return f"{size} bytes"
    if size <= MIB:
        return f"{size / KIB:.2f} KiB"
    if size <= GIB:
        return f"{size / MIB:.2f} MiB"
    return f"{size / GIB:.2f} GiB"
