"""The comparison with torch's own tables: operators that agree, and broken rules that it must notice.

It runs in a process of its own: torch's tables freeze the backends' switches of the process that loads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's tables of operators import it")

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
OPERATORS = (
    "add", "mm", "addmm", "exp", "sort", "cat", "index_select", "cumsum", "var_mean", "nn.functional.linear",
    "nn.functional.conv2d", "nn.functional.layer_norm", "nn.functional.relu", "linalg.qr", "masked_select",
)  # fmt: skip
SCRIPT = """
import json, sys
import torch
from benchmarks.coverage import __main__ as bench
from benchmarks.coverage import operators
from memlens.simulation.rules.registry import OPERATORS, Replacement

bench.warm_up()
names = sys.argv[1].split()
cases = {c.name: c for c in operators.cases(4) if c.name in names and not c.variant}
rows = [bench.run(case, 60).to_dict() for case in cases.values()]

def hidden(cuda, args, kwargs):
    return torch.empty_like(args[0])

def strided(cuda, args, kwargs):
    out = torch.empty((*args[0].shape, 2), device="meta")[..., 0]
    cuda.sim.adopt(out, "exp")
    return out

def hungry(cuda, args, kwargs):
    out, more = torch.empty_like(args[0]), torch.empty((*args[0].shape, 4), device="meta")
    cuda.sim.adopt(more, "exp")
    cuda.sim.adopt(out, "exp")
    return out

def stuck(cuda, args, kwargs):
    while True:
        pass

broken = {}
for rule in (hidden, strided, hungry, stuck):
    OPERATORS[torch.ops.aten.exp.default] = Replacement(rule, False)
    broken[rule.__name__] = bench.run(cases["exp"], 2).to_dict()
print(json.dumps({"rows": rows, "broken": broken}))
"""


@pytest.fixture(scope="module")
def measured() -> Any:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, " ".join(OPERATORS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_fifteen_operators_agree_with_the_real_run(measured: Any) -> None:
    """Metadata, gradients and, where the code is shared, peaks; every storage is counted."""
    assert {row["name"]: (row["outcome"], row["what"]) for row in measured["rows"]} == dict.fromkeys(
        OPERATORS, ("agrees", "")
    )
    assert sum(row["uncounted"] for row in measured["rows"]) == 0
    assert sum(row["peaks_compared"] for row in measured["rows"]) >= 7


def test_a_storage_that_is_hidden_from_the_ledger_is_noticed(measured: Any) -> None:
    """A rule that does not adopt what it makes: the row differs, with the bytes."""
    row = measured["broken"]["hidden"]
    assert row["outcome"] == "differs"
    assert row["what"].startswith("uncounted: aten::exp")
    assert row["uncounted"] > 0


def test_a_wrong_stride_is_noticed(measured: Any) -> None:
    """A rule whose output is laid out otherwise than the real one."""
    row = measured["broken"]["strided"]
    assert row["outcome"] == "differs"
    assert "out: stride" in row["what"]


def test_a_temporary_too_many_is_noticed(measured: Any) -> None:
    """A rule that allocates five times where the C++ that both devices share allocates once."""
    row = measured["broken"]["hungry"]
    assert row["outcome"] == "differs"
    assert row["what"].startswith("peak: ")


def test_a_rule_that_hangs_is_a_row(measured: Any) -> None:
    """The time limit ends the row's processes and no more."""
    row = measured["broken"]["stuck"]
    assert (row["outcome"], row["what"]) == ("crashes", "did not end within 2 s")
