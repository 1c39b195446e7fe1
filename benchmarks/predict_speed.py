"""How long a prediction takes, after imports, and that it does not grow with the batch.

    python -m benchmarks.predict_speed

Each case runs in a process of its own. `elapsed_seconds` is what the prediction itself reports (building the
model, two steps, the record); CPU seconds are the process's own, which a busy machine does not stretch; RSS
is the process's peak. The targets are those of a quiet 2-core machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "num_key_value_heads": 8,
    "torch_dtype": "float32",
}
LLAMA_8B = LLAMA | {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
LLAMA_70B = LLAMA | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
RUN = """
import json, resource, sys, time
import memlens, memlens.scenarios.predict
if sys.argv[1].startswith("hf:"):
    import transformers.models.llama.modeling_llama
before = time.process_time()
result = memlens.predict(sys.argv[1], **json.loads(sys.argv[2]))
figures = [result.elapsed_seconds, time.process_time() - before]
figures.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(json.dumps([*figures, result.operators, result.peak.allocated_bytes]))
"""


def cases(folder: Path) -> list[tuple[str, str, dict[str, Any], float]]:
    """(name, target, arguments, target seconds)."""
    configs = {"8b": LLAMA_8B, "70b": LLAMA_70B}
    for name, config in configs.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    image: dict[str, Any] = {"inputs": "3x224x224", "gpu": "RTX 4090"}
    text: dict[str, Any] = {"seq_len": 4096, "gpu": "H200"}
    return [
        ("VGG16, batch 32", "examples/vgg16.py:vgg16", image | {"batch_size": 32}, 0.2),
        ("ResNet-50, batch 64", "examples/resnet50.py:resnet50", image | {"batch_size": 64}, 1.0),
        ("ResNet-50, batch 4096", "examples/resnet50.py:resnet50", image | {"batch_size": 4096}, 1.0),
        ("Llama-3-8B, 4,096 tokens", f"hf:{folder}/8b/config.json", text, 3.0),
        ("Llama-3-70B, 4,096 tokens", f"hf:{folder}/70b/config.json", text, 6.0),
    ]


def measure(target: str, arguments: dict[str, Any]) -> tuple[float, float, int, int, int]:
    """(seconds, CPU seconds, peak RSS bytes, operators, peak bytes), the fastest of three processes."""
    runs = []
    for _ in range(3):
        command = [sys.executable, "-W", "ignore", "-c", RUN, target, json.dumps(arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(tuple(json.loads(done.stdout.splitlines()[-1])))
    return min(runs)


def main() -> None:
    """Print the table."""
    print(f"{'case':28} {'seconds':>8} {'CPU s':>6} {'target':>7} {'RSS MiB':>8} {'operators':>10} peak GiB")
    with tempfile.TemporaryDirectory() as folder:
        for name, target, arguments, wanted in cases(Path(folder)):
            seconds, cpu, rss, operators, peak = measure(target, arguments)
            sizes = f"{rss / 2**20:8.0f} {operators:10,} {peak / 2**30:9.2f}"
            print(f"{name:28} {seconds:8.2f} {cpu:6.2f} {wanted:7.1f} {sizes}", flush=True)


if __name__ == "__main__":
    main()
