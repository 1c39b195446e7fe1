"""A small GPT trained on characters, in the manner of nanoGPT: settings at the top, one long loop.

memlens predict examples/scripts/nano_gpt.py --gpu "A100 40GB" -- batch_size=8 n_layer=12
"""

import math
import os
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import init_process_group
from torch.nn.parallel import DistributedDataParallel

batch_size, block_size, vocabulary = 4, 256, 512
n_layer, n_head, n_embd, dropout = 4, 8, 512, 0.1
gradient_accumulation_steps, max_iters, eval_interval, eval_iters = 4, 100, 50, 2
learning_rate, warmup_iters, min_lr, grad_clip = 6e-4, 10, 6e-5, 1.0
device, dtype, compile = "cuda", "bfloat16", True
for word in sys.argv[1:]:
    key, value = word.split("=")
    globals()[key] = type(globals()[key])(eval(value) if value[0].isdigit() else value)

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="nccl")
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
torch.manual_seed(1337)
torch.set_float32_matmul_precision("high")
ctx = torch.autocast("cuda", getattr(torch, dtype)) if "cuda" in device else nullcontext()
data = np.random.default_rng(0).integers(0, vocabulary, 100_000).astype(np.uint16)


def get_batch():
    starts = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in starts])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.up, self.down = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, n_head, -1).transpose(1, 2) for z in self.attn(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout if self.training else 0, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).contiguous().view(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, n_embd), nn.Embedding(block_size, n_embd)
        self.h, self.ln_f = nn.ModuleList(Block() for _ in range(n_layer)), nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids, targets=None):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1), device=ids.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1), ignore_index=-1)


model = GPT().to(device)
decay, rest = ([p for p in model.parameters() if (p.dim() >= 2) is large] for large in (True, False))
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused="cuda" in device)
scaler = torch.amp.GradScaler("cuda", enabled=dtype == "float16")
if compile:
    model = torch.compile(model)
if ddp:
    model = DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])


def get_lr(it):
    warm, done = min(1.0, (it + 1) / warmup_iters), min(1.0, it / max_iters)
    return min_lr + warm * 0.5 * (1 + math.cos(math.pi * done)) * (learning_rate - min_lr)


X, Y = get_batch()
started = time.time()
for it in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    if it % eval_interval == 0:
        model.eval()
        with torch.no_grad():
            losses = [model(*get_batch())[1].item() for _ in range(eval_iters)]
        model.train()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": it}, "ckpt.pt")
        print(f"step {it}: loss {np.mean(losses):.4f}")
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {it}: loss {loss.item() * gradient_accumulation_steps:.4f}, {time.time() - started:.1f} s")
