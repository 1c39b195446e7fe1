"""Runs operators on metadata and keeps the ledger of what they allocate.

Below autograd every operator arrives here. What it returns is found by asking torch's meta kernel once per
distinct call (operator, shapes, strides, dtypes, scalars) and from then on from a table: the meta kernels are
mostly Python and cost some 200 us each, the table some 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from memlens.errors import MemlensError, UnsupportedOperator
from memlens.simulation.core import device_checks
from memlens.simulation.core.ledger import CUDA, PLAIN
from memlens.simulation.core.sparse import has_sparse, is_sparse, parts_of
from memlens.simulation.core.uncounted import refuse_uncounted
from memlens.simulation.dispatch import autograd_in_place
from memlens.simulation.dispatch.operators import Kind, Operator, look_up
from memlens.simulation.dispatch.output_cache import META, Recipe, describe, recipe_of
from memlens.simulation.rules.registry import run_composite

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_NO_FUNCTION_MODES = torch._C.DisableTorchFunction


class DispatchMode(TorchDispatchMode):
    """The mode that stands in for CUDA's kernels while a simulation is active."""

    supports_higher_order_operators = True  # to refuse them in our own words

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.sim = simulation
        self.ledger = simulation.ledger
        self._operators: dict[OpOverload, Operator] = {}
        self._recipes: dict[tuple[Any, ...], Recipe | None] = {}
        self._valid: set[tuple[Any, ...]] = set()  # in-place calls that torch accepted

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do not wrap the method below for the compiler: that would import it."""
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with self.ledger.lock, _NO_FUNCTION_MODES():
            for wrapper in filter(is_traceable_wrapper_subclass_type, types):
                with self:  # a jagged tensor does it with the tensor inside, which is ours again
                    return wrapper.__torch_dispatch__(func, types, args, kwargs or {})  # type: ignore[attr-defined]
            return self.run(func, args, kwargs or {})

    def for_thread(self) -> DispatchMode:
        """The same mode for another thread: what was learned of operators is shared."""
        mode = DispatchMode(self.sim)
        mode._operators, mode._recipes, mode._valid = self._operators, self._recipes, self._valid
        return mode

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sim = self.sim
        op = self._operators.get(func)
        if op is None:
            op = self._operators[func] = look_up(func, sim)
        if op.sparse is not None and has_sparse(args):
            return self._sparse(func, op, args, kwargs)
        if op.replace is not None and (not op.on_device or sim.is_cuda(args[0])):
            if op.on_device:
                device_checks.check_arguments(self.ledger, func, args, kwargs)
            if op.check is not None and sim.is_cuda(args[0]):
                op.check(args, kwargs)
            sim.operators += 1
            out = op.replace(op.cuda, args, kwargs)
            if sim.watch is not None:
                sim.watch(func, args, kwargs, out)
            return out
        if op.composite:
            with self:  # only inference mode brings one here undecomposed
                return run_composite(op.cuda, func, args, kwargs)
        if op.in_place_in_backward:
            node = torch._C._current_autograd_node()
            if (
                node is not None
                and autograd_in_place.called_by_engine(2)
                and autograd_in_place.in_place(self.ledger, func, args, node)
            ):
                if op.scratch is not None and self.ledger.is_cuda(args[0]):
                    self._scratch(op, args, kwargs, args[0])
                return args[0]
        given = args, kwargs
        metas: list[Tensor] = []
        reals: list[Tensor] = []
        key: list[Any] = [func]
        describe(args, metas, reals, key)
        if kwargs:
            describe(kwargs.values(), metas, reals, key)
            key.extend(kwargs)
        target: str | None
        if not metas:
            device = kwargs.get("device") or next((a for a in args if isinstance(a, torch.device)), None)
            if device is not None and device.type == "cuda":  # past the mode that makes it meta, from C++
                raise UnsupportedOperator(
                    f"{func} makes a tensor on the device that is not simulated (nested or sparse)",
                    hint="use padded tensors, or layout=torch.jagged, to estimate it",
                )
            if device is None or device.type != "meta":
                return func(*args, **kwargs)
            target = sim.factory_target()
        else:
            try:
                target, is_apart = self._target(op, metas)
            except NotImplementedError:
                raise _no_sparse(func, sim) from None
            if kwargs.get("device") is not None and sim.target is not None:
                target = sim.target  # `empty_like(x, device="cuda")`: elsewhere than its argument
            elif target is CUDA and (reals or is_apart):
                self._check_devices(func, op, args, kwargs, metas, reals)
            if target is CUDA and op.check is not None:
                op.check(args, kwargs)
            if reals:
                args, kwargs = self._lift(func, op, args, kwargs, reals)
        if op.composed is not None and target is CUDA:
            with self:
                out = op.composed(*args, **kwargs)
            sim.attribution.remember(op.name)
            return out
        sim.operators += 1
        try:
            out = self._execute(func, op, args, kwargs, tuple(key), target, metas)
        except torch.OutOfMemoryError:
            # do not bind it: error -> traceback -> frame -> error would keep tensors alive
            raise
        except RuntimeError as error:
            out = self._fall_back(func, op, given, error)
        if sim.watch is not None:
            sim.watch(func, args, kwargs, out)
        return out

    def _sparse(self, func: OpOverload, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator on a sparse tensor: one of the host is torch's own affair."""
        if not any(isinstance(value, Tensor) and value.is_meta for value in args):
            return func(*args, **kwargs)
        for value in args:
            for part in parts_of(value) if is_sparse(value) else (value,):
                if isinstance(part, Tensor) and part.is_meta and self.ledger.of(part) is None:
                    refuse_uncounted(part, op.name, self.sim.site(op.name).where)
        self.sim.operators += 1
        assert op.sparse is not None
        out = op.sparse(op.cuda, args, kwargs)
        if self.sim.watch is not None:
            self.sim.watch(func, args, kwargs, out)
        return out

    def _check_devices(
        self,
        func: OpOverload,
        op: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        metas: list[Tensor],
        reals: list[Tensor],
    ) -> None:
        if op.mixes:
            if op.indexes:
                device_checks.check_indices(self.ledger, args)
        elif any(real.dim() for real in reals) or device_checks.is_elsewhere(self.ledger, metas):
            device_checks.refuse(self.ledger, func, args, kwargs)

    def _fall_back(self, func: OpOverload, op: Operator, given: tuple[Any, Any], error: RuntimeError) -> Any:
        """The meta kernel gave up, for the size depends on data: a rule may know it, or a bound."""
        if op.fallback is None:
            if isinstance(error, NotImplementedError) or "INTERNAL ASSERT" in str(error):
                raise _unsupported(func, self.sim, error) from error
            raise error
        out = op.fallback(op.cuda, *given)
        if op.follows:
            self.sim.values.follow(func, *given, out)
        return out

    def _execute(
        self,
        func: OpOverload,
        op: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: tuple[Any, ...],
        target: str | None,
        metas: list[Tensor],
    ) -> Any:
        kind, sim = op.kind, self.sim
        if kind is not Kind.FRESH:
            sim.attribution.remember(op.name)  # its backward may allocate where it did not
        if kind is Kind.VIEW:
            return func(*args, **kwargs)
        if kind is Kind.FRESH:
            recipe = self._recipes.get(key)
            if recipe is not None:
                out = recipe.build()
            else:
                out = func(*args, **kwargs)
                self._recipes[key] = recipe_of(out, metas)
            if target is not None:
                self._adopt(out, target, op)
                if op.follows and (not metas or sim.values.worth_following(op.name, metas[0])):
                    sim.values.follow(func, args, kwargs, out)
        elif kind is Kind.INPLACE:
            if key in self._valid or op.lists:
                out = args[0] if func._schema.returns else None
            else:
                out = func(*args, **kwargs)
                self._valid.add(key)
            self._written(args[0])
            if op.fills:
                sim.values.filled(args[0], args[1] if len(args) > 1 else 0)
        else:
            out = func(*args, **kwargs)
            self._resized(metas, out, target, op)
            self._written(out)
        if target is CUDA and (op.scratch is not None or op.uses_blas):
            self._scratch(op, args, kwargs, out)
        return out

    def _target(self, op: Operator, metas: list[Tensor]) -> tuple[str | None, bool]:
        """Where the outputs live: where the inputs do, on the device if any does; None if no input is known.

        And whether an input is elsewhere than on the device.

        Raises UncountedTensor where an input on the device meets one that the ledger does not hold.
        """
        storages = self.ledger.storages
        target = uncounted = None
        is_apart = False
        for tensor in metas:
            entry = storages.get(tensor.untyped_storage()._cdata)
            if entry is None and op.indexes:  # `x[[0, 2]]`: C++ made the index of the list, seen by no mode
                self.sim.adopt(tensor, op.name)
            elif entry is None:
                uncounted = tensor
            elif entry.device is CUDA:
                target = CUDA
            else:
                is_apart = True
                if target is not CUDA and (entry.device is not PLAIN or target is None):
                    target = entry.device
        if uncounted is not None and target is CUDA:
            refuse_uncounted(uncounted, op.name, self.sim.site(op.name).where)
        return target, is_apart

    def _lift(
        self,
        func: OpOverload,
        op: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reals: list[Tensor],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Host tensors with real data meet tensors without: give them meta twins for this call."""
        if not op.no_numbers and all(real.dim() == 0 for real in reals):
            return args, kwargs
        twins = {id(real): _twin(real) for real in reals if real.dim() > 0 or op.no_numbers}

        def swap(value: Any) -> Any:
            if isinstance(value, Tensor):
                return twins.get(id(value), value)
            if type(value) in (list, tuple):
                return type(value)(swap(item) for item in value)
            return value

        return swap(args), {name: swap(value) for name, value in kwargs.items()}

    def _adopt(self, out: Any, target: str, op: Operator) -> None:
        if isinstance(out, Tensor):
            outputs: Any = (out,)
        elif isinstance(out, (tuple, list)):
            outputs = out
        else:
            return
        sim, storages = self.sim, self.ledger.storages
        node = torch._C._current_autograd_node()
        site = sim.attribution.site(op.name, node)
        sequence = -1 if node is None else node._sequence_nr()
        for tensor in outputs:
            if isinstance(tensor, Tensor) and tensor.is_meta:
                storage = tensor.untyped_storage()
                if storage._cdata not in storages:
                    self.ledger.adopt(storage, target, sim.category(), site, sim.stream, sequence)

    def _written(self, first: Any) -> None:
        if not self.sim.values.known:
            return
        for tensor in first if isinstance(first, (list, tuple)) else (first,):
            if isinstance(tensor, Tensor) and tensor.is_meta:
                self.sim.values.forget(tensor)

    def _resized(self, metas: list[Tensor], out: Any, target: str | None, op: Operator) -> None:
        """After an operator that may have resized its arguments: settle the ledger with what is there now."""
        if target is not None:
            self._adopt(out, target, op)
            self._adopt(metas, target, op)
        for tensor in metas:
            storage = tensor.untyped_storage()
            entry = self.ledger.storages.get(storage._cdata)
            if entry is not None and entry.nbytes != storage.nbytes():
                self.ledger.resized(entry, storage.nbytes(), self.sim.site(op.name), self.sim.stream)

    def _scratch(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        sim = self.sim
        if op.uses_blas:
            sim.blas_workspace(op.name)
        if op.scratch is None:
            return
        sizes = op.scratch.sizes(op.cuda, args, kwargs, out)
        if not sizes:
            return
        steps: Any = sizes if type(sizes) is list else [(sizes,) if isinstance(sizes, int) else sizes]
        for step in steps:
            op.cuda.scratch(*step, category=op.scratch.category)


def _twin(real: Tensor) -> Tensor:
    return torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=META)


def _no_sparse(func: OpOverload, sim: Simulation) -> MemlensError:
    where = sim.site(func._schema.name).where
    return UnsupportedOperator(
        f"{func}{f' at {where}' if where else ''}: this operator is not simulated for sparse tensors",
        hint="to_dense() before it gives an upper bound; indices and values are dense tensors",
    )


def _unsupported(func: OpOverload, sim: Simulation, error: Exception) -> MemlensError:
    site = sim.site(func._schema.name)
    at = f" at {site.where}" if site.where else ""
    why = str(error).splitlines()[0].partition(". ")[0]
    return UnsupportedOperator(
        f"{func} has no rule for a device that is not there{at}: {why}",
        hint="its output depends on data or on a GPU kernel; run this part outside the simulation",
    )
