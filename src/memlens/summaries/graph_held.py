"""What the graph holds without saving it: inputs of checkpointed blocks, attributes of custom functions.

`saved_tensors_hooks` does not show these. A storage that dies with the graph was held by it: so the outputs
are dropped first, then the graph, and the ledger shows what was freed when.
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from memlens.simulation.core.tensors_in import tensors_in
from memlens.summaries.nodes import Saved
from memlens.summaries.recorder import Recorder


def find_held(recorder: Recorder, returned: list[Any]) -> None:
    """Add to what is saved what the graph of `returned` holds. Empties it; keep no other reference.

    To be called when the forward has ended; afterwards the graph is gone, and `recorder.alive` has the
    storages that were there while it was.
    """
    storages = recorder.sim.ledger.storages
    with torch._C.DisableTorchFunction():
        graph = [tensor.grad_fn for tensor in tensors_in(returned)]
        returned.clear()
        recorder.alive = dict(storages)
        unsaved = [(e, e.alloc.id) for e in storages.values() if e.alloc and id(e) not in recorder.saved]
        suspects = [(entry, number) for entry, number in unsaved if number in recorder.owners]
        graph.clear()
        if any(storages.get(entry.key) is entry for entry, _ in suspects):
            gc.collect()  # a custom function and what it holds may be a cycle
        for entry, number in suspects:
            if storages.get(entry.key) is not entry:
                maker, size = recorder.owners[number], entry.nbytes
                recorder.saved[id(entry)] = Saved(
                    maker, (size,), torch.uint8, size, entry.key, entry, number, held=True
                )
