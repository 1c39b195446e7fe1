"""Every answer of the command line, written into a folder, so that two versions can be compared.

    python benchmarks/same_answers.py BEFORE --truth ../shared/truth
    python benchmarks/same_answers.py AFTER --truth ../shared/truth --against BEFORE

The second call lists the files that differ and their first differing lines, and exits with 1 if there are
any. `--only TEXT` runs the answers whose name has TEXT in it; `--no-run` only compares the two folders.

It calls memlens by its command line alone, so it runs on any version: PYTHONPATH says which. The inputs are
those beside this file (examples/), a few nets and configs of its own, and the snapshots of `--truth`. Times,
versions and the folder it works in are replaced, so that what differs is an answer.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
COLUMNS = 80
LONGEST_LINE = 300_000  # characters; a longer line is the plotting library inside a page: its hash will do
SHOWN_LINES, SHOWN_CHARACTERS = 3, 160

NETS = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, width=256, layers=4, recompute=False):
        super().__init__()
        self.embed, self.recompute = nn.Embedding(5000, width), recompute
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, 5000, bias=False)
        self.head.weight = self.embed.weight
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.head(x)

class Tagger(nn.Module):
    def __init__(self, kind="LSTM", width=256):
        super().__init__()
        self.embed = nn.Embedding(5000, 128)
        self.rnn = getattr(nn, kind)(128, width, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(2 * width, 50)
    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])

class Volume(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.InstanceNorm3d(16), nn.GELU(),
                                  nn.MaxPool3d(2), nn.Conv3d(16, 32, 3, padding=1, groups=4))
        self.up = nn.ConvTranspose3d(32, 4, 2, 2)
    def forward(self, x):
        return self.up(self.down(x))

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.branch = nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.Conv2d(32, 32, 3, 1, 2, 2, 32)
        self.norm, self.scale = nn.BatchNorm2d(32), nn.Parameter(torch.ones(32, 1, 1))
        self.idle = nn.Linear(3, 3)
        self.head = nn.Linear(64, 10)
    def forward(self, image):
        x = F.relu(self.norm(self.stem(image)))
        y = torch.cat([x, self.branch(x) * self.scale], 1)
        attention = y.flatten(2).transpose(1, 2)[:, :256]
        y = F.scaled_dot_product_attention(attention, attention, attention)
        return {"logits": self.head(y.mean(1)), "parts": [y, (x, None)]}

class Frozen(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(512, 2048), nn.ReLU(inplace=True), nn.Linear(2048, 512), nn.LayerNorm(512),
                         nn.Dropout(0.1), nn.Linear(512, 10))
        self[0].requires_grad_(False)
"""

GROWS = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
losses = []
for step in range(50):
    loss = model(torch.randn(64, 512, device="cuda")).square().mean()
    losses.append(loss)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

CONFIGS = {
    "gpt2": {"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 8, "vocab_size": 5000},
    "llama": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "vocab_size": 8000,
        "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    },
    "bert": {"model_type": "bert", "num_hidden_layers": 3, "hidden_size": 384, "num_attention_heads": 6},
    "opt": {"model_type": "opt", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4},
}  # fmt: skip

MPROF = "CMDLINE python train.py\n" + "".join(
    f"MEM {20 + (step % 7) * 15.5:.6f} {1700000000 + step / 10:.4f}\n"
    + (f"FUNC __main__.load 20.0000 {1700000000.5:.4f} 82.0000 {1700000001.2:.4f} 0\n" if step == 15 else "")
    for step in range(40)
)

VGG = "examples/vgg16.py:vgg16 --input 3x224x224 --batch-size 32"
RESNET = "examples/resnet50.py:resnet50 --input 3x224x224 --batch-size 64"
ENCODER = "nets.py:Encoder --input int64:128 --batch-size 16"
TAGGER = "nets.py:Tagger --input int64:100 --batch-size 16"
VOLUME = "nets.py:Volume --input 1x32x48x48 --batch-size 2 --loss mean"
MIXED = "nets.py:Mixed --input 3x96x96 --batch-size 8 --loss mean"
FROZEN = "nets.py:Frozen --input 512 --batch-size 256"
GENERATION = "hf:llama.json --mode inference --prompt-tokens 64 --new-tokens 16"
TIMM = "timm:resnet18 timm:vit_tiny_patch16_224 timm:mobilenetv2_100 timm:efficientnet_b0 timm:convnext_tiny"
VISION = "torchvision:vgg16 torchvision:densenet121 torchvision:inception_v3 torchvision:swin_t"

# name -> target and options, each asked as text, as JSON, and of two as a record too
PREDICTIONS = {
    "vgg16_t4": f"{VGG} --gpu T4",
    "vgg16_no_card": VGG,
    "vgg16_2gib": f"{VGG} --memory 2GiB",
    "vgg16_sgd_v100": f"{VGG} --gpu V100 --optimizer sgd --optimizer-arg momentum=0.9",
    "vgg16_inference": f"{VGG} --gpu 3060 --mode inference --precision fp16",
    "vgg16_one": "examples/vgg16.py:vgg16 --input 3x224x224 --gpu 4090 --optimizer none --steps 3",
    "resnet50_a100": f"{RESNET} --gpu a100-40gb",
    "resnet50_amp_h100": f"{RESNET} --gpu H100 --precision amp-bf16 --accumulate 2",
    "resnet50_amp_fp16": f"{RESNET} --gpu T4 --precision amp-fp16 --optimizer sgd",
    "resnet50_expandable": f"{RESNET} --gpu 4090 --alloc-conf expandable_segments:True",
    "resnet50_split": f"{RESNET} --gpu 4090 --alloc-conf max_split_size_mb:64",
    "resnet50_bf16_for_loop": f"{RESNET} --gpu B200 --precision bf16 --optimizer-arg foreach=False",
    "encoder_a100": f"{ENCODER} --gpu a100-80gb",
    "encoder_recompute": f"{ENCODER} --gpu L4 --model-arg recompute=True",
    "encoder_bf16_adafactor": f"{ENCODER} --gpu L40S --precision bf16 --optimizer adafactor",
    "encoder_fused": f"{ENCODER} --gpu H100 --optimizer-arg fused=True",
    "tagger_t4": f"{TAGGER} --gpu T4",
    "tagger_gru": f"{TAGGER} --gpu A100 --model-arg kind=GRU --optimizer rmsprop",
    "volume": f"{VOLUME} --gpu V100 --optimizer adagrad",
    "mixed": f"{MIXED} --gpu 3090",
    "frozen": f"{FROZEN} --gpu T4 --optimizer adamw",
    "torch_linear": "torch.nn:Linear --model-arg in_features=1024 --model-arg out_features=1024 --input 1024"
    " --loss sum --gpu T4",
    "gpt2": "hf:gpt2.json --seq-len 256 --batch-size 4 --gpu T4",
    "gpt2_checkpointing": "hf:gpt2.json --seq-len 256 --batch-size 4 --gpu T4 --grad-checkpointing",
    "llama_bf16": "hf:llama.json --seq-len 512 --batch-size 2 --precision bf16 --gpu a100-40gb",
    "llama_generate": f"{GENERATION} --gpu T4",
    "llama_static": f"{GENERATION} --gpu T4 --cache static",
    "bert": "hf:bert.json --seq-len 128 --batch-size 8 --gpu T4 --precision amp-fp16",
    "opt": "hf:opt.json --seq-len 64 --batch-size 4 --gpu T4",
    **{
        re.sub(r"\W+", "_", target): f"{target} --batch-size 8 --gpu 3060"
        for target in (f"{TIMM} {VISION}").split()
    },
}
SCRIPTS = {
    "accelerate_loop": "--gpu 4090", "detection": "--gpu T4", "gan": "--gpu T4", "hf_trainer": "--gpu T4",
    "lightning_trainer": "--gpu 4090", "nano_gpt": "--gpu a100-40gb", "peft_lora": "--gpu 4090",
    "plain_loop": "--gpu T4", "qlora_4bit": "--gpu T4", "rnn_packed": "--gpu 3060",
    "tensorboard_metrics": "--gpu T4", "timm_style": "--gpu T4", "torchvision_style": "--gpu T4",
    "unet_diffusion": "--gpu 3060",
}  # fmt: skip
HELP = ("predict", "advise", "snapshot", "summary", "report", "compare", "run", "attach", "plot")
# name -> command line; {out} is the answer's own name in the folder that all work in
OTHERS = {
    "page_prediction": f"predict {MIXED} --gpu 3090 -o {{out}}.html",
    "page_of_record": "report encoder_a100.memlens -o {out}.html",
    "snapshot_written": f"predict {TAGGER} --gpu T4 -o {{out}}.pickle",
    "snapshot_written_read": "snapshot snapshot_written.pickle --replay",
    "snapshot_written_json": "snapshot snapshot_written.pickle --replay --json",
    "grows": "predict grows.py --gpu T4",
    "grows_json": "predict grows.py --gpu T4 --json",
    "summary_vgg16": f"summary {VGG}",
    "summary_vgg16_json": f"summary {VGG} --json",
    "summary_vgg16_formulas": f"summary {VGG} --formulas",
    "summary_vgg16_torchinfo": f"summary {VGG} --like torchinfo",
    "summary_vgg16_torchsummary": f"summary {VGG} --like torchsummary",
    "summary_resnet50_json": f"summary {RESNET} --json --precision amp-bf16",
    "summary_resnet50_sort": f"summary {RESNET} --sort kept_bytes --depth 2",
    "summary_encoder": f"summary {ENCODER} --depth 5 -o {{out}}.csv",
    "summary_encoder_json": f"summary {ENCODER} --json",
    "summary_tagger": f"summary {TAGGER}",
    "summary_mixed": "summary nets.py:Mixed --input 3x96x96 --batch-size 8 --mode eval",
    "summary_mixed_json": "summary nets.py:Mixed --input 3x96x96 --batch-size 8 --json",
    "summary_frozen": f"summary {FROZEN} --columns output_size,num_params,kept_bytes,mult_adds",
    "summary_gpt2": "summary hf:gpt2.json --seq-len 64",
    "advise_vgg16": f"advise {VGG} --gpu 3060 --memory 4GiB",
    "advise_vgg16_json": f"advise {VGG} --memory 4GiB --json",
    "advise_mixed": f"advise {MIXED}",
    "advise_encoder_json": f"advise {ENCODER} --memory 700MiB --json",
    "advise_encoder_same": f"advise {ENCODER} --memory 700MiB --same-result",
    "advise_largest": "advise nets.py:Encoder --input int64:128 --gpu T4 --largest-batch --json",
    "advise_gpt2_json": "advise hf:gpt2.json --seq-len 256 --batch-size 8 --memory 1GiB --json",
    "advise_script_json": "advise grows.py --memory 160MiB --json",
    "compare_steps": "compare encoder_a100.memlens encoder_recompute.memlens",
    "compare_json": "compare encoder_a100.memlens encoder_recompute.memlens --json --top 20",
    "compare_other": "compare mixed.memlens snapshot_written.pickle --by category --by line",
    "peak_records": "peak encoder_a100.memlens snapshot_written.pickle mprofile_20260131235959.dat",
    "peak_json": "peak encoder_a100.memlens mprofile_20260131235959.dat --json",
    "peak_function": "peak --func load mprofile_20260131235959.dat",
    "plot_record": "plot encoder_a100.memlens",
    "plot_dat": "plot mprofile_20260131235959.dat",
    "page_dat": "report mprofile_20260131235959.dat -o {out}.html",
    "list": "list",
    "gpus_help": "gpus --help",
    **{f"help_{name}": f"{name} --help" for name in HELP},
    "error_no_command": "predicd",
    "error_no_file": "predict nothing.py:net --input 3",
    "error_no_object": "predict nets.py:Nothing --input 3",
    "error_no_card": f"predict {MIXED} --gpu nothing",
    "error_no_input": "predict nets.py:Frozen",
    "error_wrong_shape": "predict nets.py:Frozen --input 3x3",
    "error_option": "predict grows.py --precision bf16",
    "error_not_a_record": "report nets.py",
    "error_no_overwrite": "snapshot snapshot_written.pickle -o mprofile_20260131235959.dat",
}  # fmt: skip


def snapshots(truth: Path | None) -> Iterator[tuple[str, str]]:
    """What is asked of each recorded snapshot."""
    names = sorted(path.stem for path in truth.glob("snapshots/*.pickle")) if truth else []
    for name in names:
        yield f"snapshot_{name}", f"snapshot {name}.pickle --replay"
        yield f"snapshot_{name}_json", f"snapshot {name}.pickle --replay --json --top 30"
        yield f"report_{name}", f"report {name}.pickle -o {{out}}.html"
        yield f"peak_{name}", f"peak {name}.pickle --json"
        yield f"compare_{name}", f"compare encoder_a100.memlens {name}.pickle"


def cases(truth: Path | None) -> dict[str, str]:
    """Name -> command line, in the order in which later ones need the files of earlier ones."""
    lines = {}
    for name, options in PREDICTIONS.items():
        lines[f"predict_{name}"] = f"predict {options}"
        lines[f"predict_{name}_json"] = f"predict {options} --json -o {name}.memlens --force"
    for name, options in SCRIPTS.items():
        lines[f"script_{name}"] = f"predict examples/scripts/{name}.py {options} --json -o {{out}}.txt"
    return lines | OTHERS | dict(snapshots(truth))


def needs(line: str) -> str | None:
    """A package that the command line needs and that is missing here."""
    wanted = {
        "timm:": "timm", "timm_style": "timm", "torchvision:": "torchvision",
        "torchvision_style": "torchvision", "hf:": "transformers", "hf_trainer": "transformers",
        "peft_lora": "peft", "accelerate_loop": "accelerate", "lightning_trainer": "lightning",
        "qlora_4bit": "bitsandbytes", "tensorboard_metrics": "torchmetrics",
    }  # fmt: skip
    packages = (package for text, package in wanted.items() if text in line)
    return next((name for name in packages if importlib.util.find_spec(name) is None), None)


def lay_inputs(folder: Path, truth: Path | None) -> None:
    """The files that the command lines name."""
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "nets.py").write_text(NETS)
    (folder / "grows.py").write_text(GROWS)
    (folder / "mprofile_20260131235959.dat").write_text(MPROF)
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    for path in truth.glob("snapshots/*.pickle") if truth else ():
        (folder / path.name).symlink_to(path.resolve())


def answer(arguments: list[str]) -> str:
    """Call the command line in this process: its exit code, what it printed, and what it said on stderr."""
    from memlens.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        except BaseException:  # a crash is an answer too
            code = traceback.format_exc(limit=0)
    return f"exit {code}\n--- printed\n{out.getvalue()}--- on stderr\n{err.getvalue()}"


def rules(folder: Path) -> list[tuple[re.Pattern[str], str]]:
    """What is replaced in an answer: paths, versions, times."""
    import torch

    import memlens

    home = "|".join(re.escape(str(path)) for path in {folder, folder.resolve()})
    version = "|".join(re.escape(v) for v in (torch.__version__, memlens.__version__))
    source = re.escape(str(Path(memlens.__file__).parents[1]))
    packages = re.escape(str(Path(torch.__file__).parents[1]))
    return [
        (re.compile(pattern), replacement)
        for pattern, replacement in (
            (home, "FOLDER"),
            (source, "SOURCE"),
            (packages, "PACKAGES"),
            (rf"\b({version})(?![\w.])", "VERSION"),
            (r'("elapsed_seconds": )[\d.e-]+', r"\1TIME"),
            (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?", "TIME"),
            (r"\b(in|after) [\d,.]+ (ms|s|seconds)\b", r"\1 TIME"),
            (r"\bat 0x[0-9a-f]{8,}>", "at ADDRESS>"),
        )
    ]


def normalised(text: str, replaced: list[tuple[re.Pattern[str], str]]) -> str:
    lines = []
    for line in text.splitlines():
        if len(line) > LONGEST_LINE:
            line = f"{len(line)} characters, sha1 {hashlib.sha1(line.encode()).hexdigest()}"
        for pattern, replacement in replaced:
            line = pattern.sub(replacement, line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def run(output: Path, truth: Path | None, only: str | None) -> None:
    """Write every answer into the folder `output`."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="same-answers-") as temporary:
        folder = Path(temporary)
        lay_inputs(folder, truth)
        os.chdir(folder)
        replaced = rules(folder)
        for name, line in cases(truth).items():
            if only and only not in name:
                continue
            start = time.perf_counter()
            missing = needs(line)
            text = f"needs {missing}\n" if missing else answer(line.format(out=name).split())
            (output / f"{name}.answer").write_text(normalised(f"memlens {line}\n{text}", replaced))
            for path in folder.glob(f"{name}.*"):
                if path.suffix in (".txt", ".html", ".csv", ".json"):
                    (output / path.name).write_text(normalised(path.read_text(), replaced))
            print(f"{time.perf_counter() - start:6.1f} s  {name}", file=sys.stderr, flush=True)
        os.chdir(output)


def first_difference(a: str, b: str) -> int:
    """The column where two lines part."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def differences(before: Path, after: Path, only: str | None) -> Iterator[str]:
    """Each file that differs, with its first differing lines."""
    names = {path.name for folder in (before, after) for path in folder.iterdir()}
    for name in sorted(name for name in names if not only or only in name):
        paths = [folder / name for folder in (before, after)]
        gone = [path for path in paths if not path.exists()]
        if gone:
            yield f"{name}: missing in {gone[0].parent}"
            continue
        old, new = (path.read_text().splitlines() for path in paths)
        if old == new:
            continue
        pairs = [(i, *pair) for i, pair in enumerate(zip(old, new, strict=False), 1) if pair[0] != pair[1]]
        yield f"{name}: {len(old)} lines and {len(new)}, {len(pairs)} differ"
        for number, a, b in pairs[:SHOWN_LINES]:
            column = max(0, first_difference(a, b) - 40)
            yield f"  {number}: - {a[column : column + SHOWN_CHARACTERS]}"
            yield f"  {number}: + {b[column : column + SHOWN_CHARACTERS]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="the folder to write into")
    parser.add_argument("--truth", type=Path, help="the folder of recorded figures, for its snapshots")
    parser.add_argument("--against", type=Path, help="compare with this folder")
    parser.add_argument("--only", help="only answers with this in their name")
    parser.add_argument("--no-run", action="store_true", help="only compare")
    options = parser.parse_args()
    output, against = (path and path.resolve() for path in (options.output, options.against))
    if not options.no_run:
        os.environ.update(COLUMNS=str(COLUMNS), OMP_NUM_THREADS="1", MEMLENS_CONFIG_DIR=os.devnull)
        run(output, options.truth, options.only)
    if against:
        lines = list(differences(against, output, options.only))
        print("\n".join(lines) or f"the same answers in {against} and {output}")
        sys.exit(bool(lines))


if __name__ == "__main__":
    main()
