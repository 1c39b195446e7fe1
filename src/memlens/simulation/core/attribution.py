"""Who asked for the memory: the user's line, the module, the operator; in backward, those of the forward.

An operator that runs in backward belongs to the forward operator whose autograd node runs. The two are tied
together by the node's sequence number, which autograd counts up in forward.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn

import memlens
from memlens.model import NOWHERE, Site
from memlens.model.user_code import Whose, whose

# whoever calls memlens' own loop wrote no line of it
_LOOP = str(Path(memlens.__file__ or "").parent / "scenarios") + os.sep
_RECOMPUTED_BY_AUTOGRAD = 2**63  # AccumulateGrad's sequence number is the largest there is


class Runs(Enum):
    """What a frame means to the search for the user's line."""

    USERS = auto()  # a line to name: the user's, or a library's on top of torch
    OURS = auto()  # go on outwards: torch, Python, memlens
    LOOP = auto()  # nobody wrote a line beyond it


class _Running(threading.local):
    """What runs in each thread."""

    def __init__(self) -> None:
        self.modules: list[tuple[str, str]] = []


class Attribution:
    """Keeps the stack of modules that run and remembers which forward site each autograd node came from."""

    def __init__(self) -> None:
        self._running = _Running()
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        # id of a parameter -> itself, as an id is used again after its tensor's death, and its module
        self._owners: dict[int, tuple[weakref.ref[Tensor], tuple[str, str]]] = {}
        self._by_sequence: dict[int, Site] = {}
        self._sites: dict[tuple[object, ...], Site] = {}
        self._user_code: dict[CodeType, Runs] = {}

    # modules ---------------------------------------------------------------------------------------

    @property
    def modules(self) -> list[tuple[str, str]]:
        """(path, type) of the modules whose forward runs in this thread."""
        return self._running.modules

    def enter(self, module: nn.Module) -> bool:
        """A module's forward begins; True if it is the outermost one."""
        outermost = not self.modules
        path = self._paths.get(module)
        if path is None:
            if outermost:
                self.name_modules(module)
                path = ""
            else:
                parent = self.modules[-1][0]
                path = f"{parent}.{type(module).__name__}" if parent else type(module).__name__
                self._paths[module] = path
        self.modules.append((path, type(module).__name__))
        return outermost

    def leave(self) -> None:
        if self.modules:
            self.modules.pop()

    def name_modules(self, root: nn.Module) -> None:
        """Give every module of `root` its dotted path, as `named_modules` does."""
        if root in self._roots:
            return
        self._roots.add(root)
        for path, module in root.named_modules():
            self._paths.setdefault(module, path)
            kind = type(module).__name__
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None and self._owner(tensor) is None:
                    self._owners[id(tensor)] = weakref.ref(tensor), (path, kind)

    def _owner(self, tensor: Tensor | None) -> tuple[str, str] | None:
        """The path and type of the module that `tensor` is a parameter or buffer of."""
        reference, owner = self._owners.get(id(tensor), (None, None))
        return owner if reference is not None and reference() is tensor else None

    def owned(self, tensor: Tensor, site: Site) -> Site:
        """`site` as that of the module which `tensor` is a parameter or buffer of, where one is known."""
        owner = self._owner(tensor)
        if owner is None or site.module is not None:
            return site
        return self._intern(site.file, site.line, site.function, *owner, site.operator, site.backward)

    def roots(self) -> Iterator[nn.Module]:
        """The outermost modules seen so far."""
        return iter(self._roots)

    # sites -----------------------------------------------------------------------------------------

    def site(self, operator: str, node: Any) -> Site:
        """The site of an operator that allocates; `node` is the autograd node that runs, if any."""
        if node is not None and not self.modules:
            return self._backward_site(operator, node)
        site = self._forward_site(operator)
        if node is None and torch.is_grad_enabled():
            # a node is made before its operator runs, so the first operator with its number is its own;
            # those after it with the same number have no node
            self._by_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, site)
        return site

    def remember(self, operator: str) -> None:
        """An operator runs in forward without allocating: its backward belongs to its line all the same."""
        if torch.is_grad_enabled() and torch._C._current_autograd_node() is None:
            number = torch._C._autograd._get_sequence_nr() - 1
            if number not in self._by_sequence:
                self._by_sequence[number] = self._forward_site(operator)

    def _forward_site(self, operator: str) -> Site:
        module, kind = self.modules[-1] if self.modules else (None, "")
        frame = self._user_frame(sys._getframe(2))
        if frame is None:
            return self._intern("", 0, "", module, kind, operator, False)
        code = frame.f_code
        return self._intern(code.co_filename, frame.f_lineno, code.co_name, module, kind, operator, False)

    def _backward_site(self, operator: str, node: Any) -> Site:
        sequence = node._sequence_nr()
        if sequence >= _RECOMPUTED_BY_AUTOGRAD:
            variable = getattr(node, "variable", None)
            module, kind = self._owner(variable) or (None, "")
            return self._intern("", 0, "", module, kind, operator, True)
        came = self._by_sequence.get(sequence, NOWHERE)
        return self._intern(
            came.file, came.line, came.function, came.module, came.module_type, operator, True
        )

    def _intern(self, *fields: Any) -> Site:
        site = self._sites.get(fields)
        if site is None:
            file, line, function, module, kind, operator, backward = fields
            site = Site(file, line, function, module, kind, operator, backward)
            self._sites[fields] = site
        return site

    def _user_frame(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of the user's code; none beyond the loop that memlens itself runs."""
        known = self._user_code
        while frame is not None:
            code = frame.f_code
            mine = known.get(code)
            if mine is None:
                mine = known[code] = _runs(code.co_filename)
            if mine is Runs.USERS:
                return frame
            if mine is Runs.LOOP:
                return None
            frame = frame.f_back
        return None


def _runs(file: str) -> Runs:
    if file.startswith(_LOOP):
        return Runs.LOOP
    return Runs.USERS if whose(file) in (Whose.USER, Whose.LIBRARY) else Runs.OURS
