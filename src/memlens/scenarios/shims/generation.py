"""`model.generate()`: it always runs to its full length: no value exists that could end a sequence."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from memlens.scenarios.shims.registry import Shims, shim


@shim("transformers.generation.utils")
def until_its_length(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """Generation goes on until the criterion of the longest length is met, and no token ends it before."""
    call = module.MaxLengthCriteria.__call__
    reached: list[bool] = [False]

    def note_length(self: Any, input_ids: Any, scores: Any, **options: Any) -> Any:
        reached[0] = input_ids.shape[-1] >= self.max_length
        return call(self, input_ids, scores, **options)

    def unfinished(self: Any, this_peer_finished: Any, *args: Any, **options: Any) -> bool:
        ended, reached[0] = reached[0], False
        return not ended

    return {
        "MaxLengthCriteria.__call__": note_length,
        "GenerationMixin._has_unfinished_sequences": unfinished,
    }
