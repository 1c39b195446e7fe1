"""What code gets when it reads a device value that nobody computed.

A small tensor that came from the host, or was made of whole numbers, keeps its data until something writes to
it; simple operators on such data are computed too, so reading the result gives the truth. Anything else gets
a stand-in, and the simulation says so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.model import Assumption
from memlens.simulation.core import guards, lbfgs, uniform

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlens.model import Site
    from memlens.simulation.core.ledger import Ledger, Storage

# operators that take only their input's shape, and what they fill with (None: the last argument)
_TEMPLATES = {
    "ones_like": 1,
    "zeros_like": 0,
    "new_ones": 1,
    "new_zeros": 0,
    "full_like": None,
    "new_full": None,
}
# distributions ask it whether their parameters are valid: taken to be true
_LIKELY = {"_is_all_true"}
KEPT_BYTES = 64 * 1024  # host tensors up to this size keep their data when they are uploaded
NOT_COMPUTED = "the simulation computes sizes, not values; code that depends on it may go another way"
NOT_ENDED = "it is asked by a check that would end the program otherwise"
STAND_INS = {"float": 1.0, "int": 1}


class Values:
    """Real data of simulated tensors where it is known, and the stand-ins that were handed out."""

    def __init__(
        self, ledger: Ledger, site: Callable[[str], Site], assume: Callable[[Assumption], None]
    ) -> None:
        self.ledger, self._site, self._assume = ledger, site, assume
        self.known = 0
        # answers of a healthy run, by their storage
        self.healthy: dict[int, tuple[Storage, uniform.Value]] = {}
        self.unknown_is = False  # what a condition that nobody computed reads as
        self.conditions: dict[str, None] = {}  # the lines that read one, in order
        self._told: set[str] = set()

    def remember(self, tensor: Tensor, real: Tensor) -> None:
        """`tensor` was copied from `real`, a host tensor with data."""
        entry = self.ledger.of(tensor)
        if entry is not None and real.numel() * real.element_size() <= KEPT_BYTES:
            entry.value = real.detach().clone()
            self.known += 1

    def forget(self, tensor: Tensor) -> None:
        """`tensor` was written to: its data is no longer known."""
        entry = self.ledger.of(tensor)
        if entry is not None and entry.value is not None:
            entry.value = None
            self.known -= 1

    def known_value(self, tensor: Tensor) -> Tensor | None:
        """The data of `tensor` where it is known: a real host tensor, or one whose data was followed."""
        if not tensor.is_meta:
            return tensor
        entry = self.ledger.of(tensor)
        kept = None if entry is None else entry.value
        if kept is None or kept.dtype != tensor.dtype or not kept.is_contiguous():
            return None
        if tensor.storage_offset() + _extent(tensor) > kept.numel():
            return None
        return torch.as_strided(kept, tensor.shape, tensor.stride(), tensor.storage_offset()).clone()

    def worth_following(self, name: str, first: Tensor) -> bool:
        """Whether an operator on `first` may have a known result: asked of every operator, so briefly."""
        entry = self.ledger.storages.get(first.untyped_storage()._cdata)
        if entry is None:
            return False
        return entry.value is not None or name in _TEMPLATES or name in _LIKELY or bool(self.healthy)

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Compute a small operator on data that is known, so that its result is known too."""
        first = out[0] if isinstance(out, (tuple, list)) else out
        if not isinstance(first, Tensor):
            return
        name = func.overloadpacket.__name__
        if self.healthy and args and name in uniform.FOLLOWED:
            self.take_as(first, uniform.result(name, args, self.healthy_value))
        if first.numel() * first.element_size() > KEPT_BYTES:
            return
        if name in _TEMPLATES:
            number = _TEMPLATES[name]
            self.filled(first, args[-1] if number is None else number)
            return
        seen: list[Tensor] = []
        real_args = self._real(args, seen)
        real_kwargs = {name: self._real(value, seen) for name, value in kwargs.items()}
        if real_args is None or any(v is None and kwargs[n] is not None for n, v in real_kwargs.items()):
            if name in _LIKELY:
                self.take_as(first, True)
            return
        if not seen and (first.dtype.is_floating_point or first.dtype.is_complex):
            return  # made from nothing: only integers and masks decide where code goes
        if "device" in real_kwargs:
            real_kwargs["device"] = torch.device("cpu")
        try:
            real = func(*real_args, **real_kwargs)
        except (RuntimeError, IndexError):
            return  # what a kernel would do with such data is not ours to say
        pairs = zip(out, real, strict=True) if isinstance(out, (tuple, list)) else ((out, real),)
        for made, data in pairs:
            if isinstance(made, Tensor) and made.is_contiguous() and made.shape == data.shape:
                self.remember(made, data)

    def filled(self, tensor: Tensor, value: Any) -> None:
        """`tensor` was filled with one number: remembered for integers and masks that own their storage."""
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex or isinstance(value, Tensor):
            return
        nbytes = tensor.numel() * tensor.element_size()
        if nbytes <= KEPT_BYTES and tensor.is_meta and tensor.untyped_storage().nbytes() == nbytes:
            self.remember(tensor, torch.full(tensor.shape, value, dtype=tensor.dtype))

    def _real(self, value: Any, seen: list[Tensor]) -> Any:
        """`value` with data in place of tensors; None where some tensor's data is not known."""
        if isinstance(value, Tensor):
            known = self.known_value(value)
            seen.append(value)
            return known
        if type(value) in (tuple, list):
            items = [self._real(item, seen) for item in value]
            if any(new is None and old is not None for new, old in zip(items, value, strict=True)):
                return None
            return type(value)(items)
        return value

    def read(self, tensor: Tensor) -> Tensor:
        """A real host tensor of `tensor`'s shape: its data where known, else the stand-in."""
        known = self.known_value(tensor)
        if known is not None:
            return known
        value = lbfgs.decided(tensor.dtype)
        if value is None:
            value, why = self.stand_in(tensor)
            self._tell(value, why)
        return torch.full(tensor.shape, value, dtype=tensor.dtype)

    def take_as(self, tensor: Tensor, value: uniform.Value | None) -> None:
        """An answer that nobody computed, and that is the same in any healthy run; None: it is not."""
        entry = self.ledger.of(tensor)
        if entry is not None and value is not None:
            self.healthy[entry.key] = entry, value

    def healthy_value(self, tensor: Any) -> uniform.Value | None:
        """What all elements of `tensor` are in a healthy run; None where that is not known."""
        entry = self.ledger.of(tensor) if isinstance(tensor, Tensor) else None
        kept = self.healthy.get(entry.key) if entry is not None else None
        # an address may have been used again since
        return kept[1] if kept is not None and kept[0] is entry else None

    def stand_in(self, tensor: Tensor) -> tuple[Any, str]:
        """What a value that nobody computed reads as, and why."""
        dtype = tensor.dtype
        healthy = self.healthy_value(tensor)
        if healthy is not None:
            return (
                healthy,
                "as in a training that does not diverge; code that depends on it may go another way",
            )
        if dtype is not torch.bool:
            usual = STAND_INS["float" if dtype.is_floating_point or dtype.is_complex else "int"]
            value = guards.number(sys._getframe(1), usual) if tensor.numel() == 1 else usual
            return value, NOT_COMPUTED if value == usual else NOT_ENDED
        value = guards.condition(sys._getframe(1))
        if value is not None:
            return value, NOT_ENDED
        self.conditions[self._where()] = None
        unknown = "" if self.unknown_is else ", which could move the figure by an unknown amount"
        return self.unknown_is, NOT_COMPUTED + unknown

    def _where(self) -> str:
        return self._site("item").where or "an unknown line"

    def _tell(self, value: Any, why: str) -> None:
        where = self._where()
        if where not in self._told:
            self._told.add(where)
            self._assume(Assumption(f"a value read from the device at {where} is taken to be {value}", why))


def _extent(tensor: Tensor) -> int:
    """Elements from the first to the last that the tensor reaches."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
