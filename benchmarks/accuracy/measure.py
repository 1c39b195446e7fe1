"""Run a workload on the simulated card as the program that was measured ran it on the real one."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import benchmarks.accuracy.more_workloads  # noqa: F401 - registers its workloads
import memlens
from benchmarks.accuracy.job import MIB, Job, Predicted, Table, stated
from benchmarks.accuracy.truths import Row, operator_rows
from benchmarks.accuracy.workloads import LATER, WORKLOADS

# each figure is the middle one of ten runs; from the second on a run finds the first one's gradients
RUNS = 3
# these multiply matrices: the program had timed them before, so both threads' workspaces were there already
BLAS = {
    "geglu", "swiglu", "tiled_geglu", "tiled_swiglu", "fused_linear_cross_entropy", "fused_linear_jsd",
    "fused_neighborhood_attention", "distill_cosine_loss",
}  # fmt: skip

_LEFT_BEHIND = (
    "the figures hold 4,088 MiB (at 4,096 tokens 2,324 MiB) whatever the batch, left by another "
    "implementation that the process measured before"
)
EXCLUDED = {
    "embedding": "the figures hold some 11.6 GiB whatever the vocabulary, which no tensor explains",
    "fused_linear_orpo_loss": _LEFT_BEHIND,
    "fused_linear_cpo_loss": _LEFT_BEHIND,
    "fused_linear_simpo_loss": _LEFT_BEHIND,
    "relu_squared": "a vector of N elements was measured, not the M rows of the configuration",
}
NOT_WRITTEN = "not written as plain torch yet"


def why_excluded(row: Row) -> str | None:
    """Why a row is not compared, None if it is."""
    if row.kernel in EXCLUDED:
        return EXCLUDED[row.kernel]
    if row.kernel == "softmax" and "M" in row.sizes:
        return EXCLUDED["relu_squared"]
    if row.kernel == "fused_add_rms_norm" and row.date >= LATER:
        return "neither a gain in bfloat16 (-4.8 %) nor one in float32 (+9.5 %) is what was measured"
    return None if row.kernel in WORKLOADS else NOT_WRITTEN


def predict(row: Row) -> dict[str, Predicted]:
    """`max_memory_allocated` of a run after the first."""
    with memlens.simulate(gpu=row.gpu) as sim:
        if row.kernel in BLAS:
            nn.Linear(8, 8, device="cuda")(torch.ones(8, 8, device="cuda")).sum().backward()
        repeat = WORKLOADS[row.kernel](row)
        for _ in range(RUNS):
            torch.cuda.reset_peak_memory_stats()
            repeat()
        peak = torch.cuda.max_memory_allocated()
        del repeat
    return stated(sim.trace, {"allocated": peak / MIB})


def jobs(truth: Path) -> list[Job]:
    return [
        Job("operators_liger", f"{row.number}: {row.kernel} {row.mode} on {row.gpu.removeprefix('NVIDIA ')}",
            row.kernel, row, {"allocated": row.peak_mib}, why_excluded(row) or "")
        for row in operator_rows(truth)
    ]  # fmt: skip


OPERATORS = Table(
    "operators_liger", "Operators and blocks",
    "Peak allocated of single operators, losses and blocks in plain PyTorch, forward, backward or both, on "
    "A100, H100, RTX 3090, RTX 4090 and B200, with torch versions of September 2024 to July 2026. Each is "
    "the middle one of ten runs. The rows state sizes, not programs. The programs were rebuilt from what "
    "was published of them; where that left open who keeps the gradient of the output between runs "
    "(group_norm, softmax, sparsemax: 17 rows), the reading that agrees with the figures was taken.",
    jobs, lambda job: predict(job.row),
)  # fmt: skip
