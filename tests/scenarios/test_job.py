"""What goes through the wall between the two processes of a script's prediction arrives as it was."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from memlens.devices import find_gpu
from memlens.scenarios.script.job import (
    Job,
    Result,
    read_job,
    read_result,
    write_job,
    write_result,
)  # fmt: skip

pytestmark = pytest.mark.torch
RESULT = Result(
    error=None, late=False, stopped=True, steps=2, optimizers=["AdamW"], precision=None, operators=7,
    conditions=[], elapsed_seconds=0.5, seen={"loaders": [4]},
)  # fmt: skip


def job(**given: Any) -> Job:
    call = {
        "path": "train.py",
        "arguments": [],
        "gpu": find_gpu("T4"),
        "steps": 3,
        "max_seconds": 60.0,
        "host_bytes": 1,
    }
    return Job(**(call | given))


@pytest.mark.parametrize("given", [{}, {"arguments": ["data/caf\udce9.txt"]}, {"max_seconds": math.inf}])
def test_a_job_arrives_as_it_was(tmp_path: Path, given: dict[str, Any]) -> None:
    """Also an argument that is not UTF-8 (to Python: lone surrogates), and no limit of time."""
    write_job(str(tmp_path), job(**given))
    assert read_job(str(tmp_path)) == job(**given)


def test_a_result_arrives_as_it_was(tmp_path: Path) -> None:
    """None before the child wrote it; afterwards the same figures."""
    assert read_result(str(tmp_path)) is None
    write_result(str(tmp_path), RESULT)
    assert read_result(str(tmp_path)) == RESULT


def test_a_result_of_the_wrong_type_is_not_a_missing_one(tmp_path: Path) -> None:
    """A mistake of memlens must show, and not be reported as a script that left nothing."""
    write_result(str(tmp_path), msgspec.structs.replace(RESULT, steps="two"))
    with pytest.raises(msgspec.ValidationError, match="steps"):
        read_result(str(tmp_path))
