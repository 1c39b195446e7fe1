"""What a script or notebook that fails says."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from memlens.errors import TargetError
from memlens.explanation.prediction import Prediction


def complaint(outcomes: dict[str, Future[Prediction]], name: str) -> str:
    """The one line about the outcome `name`; no folder of ours is in it."""
    with pytest.raises(TargetError) as caught:
        outcomes[name].result()
    assert "\n" not in caught.value.message
    return caught.value.message
