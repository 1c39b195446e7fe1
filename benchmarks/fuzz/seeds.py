"""Good files of every kind that memlens reads, made by memlens itself: what is damaged afterwards."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import subprocess, sys
def load(rows):
    held = [bytes(1000 * row) for row in range(rows)]
    more = {str(row): held[row] for row in range(rows)}
    return more
child = subprocess.Popen([sys.executable, "-c", "held = bytes(30_000_000)"])
load(300)
child.wait()
"""
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "max_position_embeddings": 128, "torch_dtype": "bfloat16",
}  # fmt: skip


def make(folder: Path) -> list[Path]:
    """One file of each kind in `folder`."""
    (folder / "program.py").write_text(PROGRAM)
    memlens = [sys.executable, "-m", "memlens"]
    for options in (["--lines", "-o", "lines.memlens"], ["--interval", "0.02", "-o", "run.memlens"]):
        command = [*memlens, "run", *options, "program.py"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (folder / "run.dat").write_text(_mprof())
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "snapshot.pickle").write_bytes(_snapshot(folder / "predicted.memlens"))
    return sorted(path for path in folder.iterdir() if path.suffix in (".memlens", ".dat", ".pickle"))


def _mprof() -> str:
    lines = ["CMDLINE python train.py --lr 0.1", "MEM 2.5 1700000000.0", "MEM 14.1 1700000000.1"]
    lines += ["FUNC __main__.load 2.6 1700000000.01 14.0 1700000000.09 0", "CHLD 4711 3.25 1700000000.1"]
    return "\n".join([*lines, "MEM 14.5 1700000000.2", "CHLD 4711 5.5 1700000000.2"]) + "\n"


def _snapshot(record: Path) -> bytes:
    """A snapshot as torch writes it, of two training steps; their prediction goes to `record`."""
    import torch

    import memlens
    from memlens.records import native

    with memlens.simulate("T4"):
        layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 4)).cuda()
        optimizer = torch.optim.Adam(layer.parameters())
        for _ in range(2):
            layer(torch.empty(8, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        snapshot = torch.cuda.memory._snapshot()
    prediction = memlens.predict(
        torch.nn.Linear(64, 4), inputs=["64"], batch_size=8, optimizer="adam", gpu="T4"
    )
    native.save(prediction.trace, record)
    return pickle.dumps(snapshot, protocol=4)
