"""Fine-tuning of an image transformer (FLUX.2 klein, 4 B parameters) with peft's methods, on an L40S.

The program that was measured is public (peft, method_comparison/image-gen) and is followed step by step: the
transformer in bfloat16 on the card with adapters in float32 on every linear layer of its blocks; a DINOv2
encoder in float32 beside it; prompts and latents of 14 pictures of 512 x 512 computed before, for which the
text encoder (Qwen3, 4 B) and the autoencoder come to the card and leave; batch 2, blocks
recomputed in backward, AdamW, gradients clipped at 1; `empty_cache` before the first and after every 25th
step; after the 100th an evaluation, for which both come again and two
pictures are made in 20 steps with guidance. Models, pipeline and adapters are those of diffusers,
transformers and peft; only sizes matter, so no weights are loaded.

Steps 2 to 25 are alike, and so are those behind each `empty_cache`: of each such stretch three are run.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy.job import MIB, Job, Predicted, Table, stated

CARD = "L40S"
BATCH, PICTURES, PIXELS, TOKENS = 2, 14, 512, 512
TEXT_LAYERS = (10, 20, 30)
EMPTY_EVERY, EVALUATE_EVERY, ALIKE = 25, 100, 3
LAYERS = [
    "to_out.0", "to_add_out", "to_qkv_mlp_proj", "add_k_proj", "add_q_proj", "add_v_proj", "to_k", "to_q",
    "to_v", "linear_in", "linear_out",
]  # fmt: skip
FIGURES = {
    "allocated after step, mean of steps 1-100": "allocated after a step",
    "reserved, mean of steps 1-100": "reserved, mean",
    "max reserved while training (after evals)": "reserved, most",
}
# method -> class of peft and what its adapter_config.json says beyond the layers
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "adalora": ("AdaLoraConfig", {"init_r": 32, "target_r": 8, "lora_alpha": 32, "tinit": 100, "tfinal": 200,
                                  "deltaT": 1, "total_step": 750}),
    "dora": ("LoraConfig", {"r": 64, "lora_alpha": 64, "use_dora": True}),
    "glora": ("GloraConfig", {"r": 32, "config_A_B": "lora", "config_C": "lora", "config_D_E": "constant"}),
    "hra": ("HRAConfig", {"r": 32}),
    "lily": ("LilyConfig", {"r": 32, "num_B": 2, "stride_A": 1, "scaling": 1.0}),
    "ln_tuning": ("LNTuningConfig", {"target_modules": ["norm_q", "norm_k"]}),
    "miss": ("MissConfig", {"r": 32, "mini_r": 1}),
    "oft": ("OFTConfig", {"r": 0, "oft_block_size": 32, "use_cayley_neumann": True}),
    "peanut": ("PeanutConfig", {"r": 32, "depth": 0, "scaling": 1.0}),
    "randlora": ("RandLoraConfig", {"r": 32, "randlora_alpha": 640}),
    "road": ("RoadConfig", {"group_size": 64, "variant": "road_1"}),
    "vblora": ("VBLoRAConfig", {"r": 32, "num_vectors": 256, "topk": 2, "vector_length": 256}),
    "vera": ("VeraConfig", {"r": 32}),
    "waveft": ("WaveFTConfig", {"n_frequency": 2592, "scaling": 25.0, "wavelet_family": "db1"}),
}  # fmt: skip


def jobs(truth: Path) -> list[Job]:
    """One program a method; each has three figures."""
    measured: dict[str, dict[str, float]] = {}
    with (truth / "peft_flux_l40s.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            name = row["program"].split()[-1].partition("/")[0]
            measured.setdefault(name, {})[FIGURES[row["figure"]]] = float(row["measured_mib"])
    unknown = "a method without its settings here"
    return [
        Job("peft_flux_l40s", name, name, name, figures, "" if name in METHODS or name == FULL else unknown)
        for name, figures in measured.items()
    ]


FULL = "full-finetuning"


class Tokens:
    """Stands for the tokenizer: every prompt is as long as the longest."""

    def apply_chat_template(self, *_: Any, **__: Any) -> str:
        return ""

    def __call__(self, *_: Any, max_length: int, **__: Any) -> dict[str, Any]:
        import torch

        return {
            name: torch.ones(1, max_length, dtype=torch.int64) for name in ("input_ids", "attention_mask")
        }


def make_pipeline() -> Any:
    """The pipeline of diffusers with models of FLUX.2 klein's public sizes, in bfloat16 on the host."""
    import torch
    from diffusers import (
        AutoencoderKLFlux2,
        FlowMatchEulerDiscreteScheduler,
        Flux2KleinPipeline,
        Flux2Transformer2DModel,
    )
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True,
    )  # fmt: skip
    transformer = Flux2Transformer2DModel(
        num_layers=5, num_single_layers=20, num_attention_heads=24, joint_attention_dim=7680,
        guidance_embeds=False,
    )  # fmt: skip
    text, vae = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16), AutoencoderKLFlux2()
    pipeline = Flux2KleinPipeline(
        FlowMatchEulerDiscreteScheduler(), vae.to(torch.bfloat16), text, None, transformer.to(torch.bfloat16)
    )
    pipeline.tokenizer = Tokens()
    transformer.enable_gradient_checkpointing()
    pipeline.set_progress_bar_config(disable=True)
    for model in (text, vae):
        model.requires_grad_(False).eval()
    return pipeline


def add_adapters(pipeline: Any, method: str) -> None:
    import peft

    if method == FULL:
        pipeline.transformer.requires_grad_(True)
    else:
        cls, options = METHODS[method]
        config = getattr(peft, cls)(**{"target_modules": LAYERS, **options})
        pipeline.transformer = peft.get_peft_model(pipeline.transformer, config)
    pipeline.transformer.train()


def make_encoder() -> Any:
    """DINOv2 base, by which pictures are compared."""
    from transformers import Dinov2Config, Dinov2Model

    return Dinov2Model(Dinov2Config(image_size=518, patch_size=14)).to("cuda").eval()


class Training:
    """The program: what it keeps on the card, and its steps."""

    def __init__(self, method: str) -> None:
        import torch

        self.method = method
        self.pipeline = make_pipeline()
        add_adapters(self.pipeline, method)
        self.order = torch.cat([torch.randperm(PICTURES, device="cuda") for _ in range(1000)])
        self.encoder = make_encoder()
        self.transformer = self.pipeline.transformer.to("cuda")
        rates = {"lr": 5e-5, "weight_decay": 0.01} if method == FULL else {"lr": 3e-4, "weight_decay": 1e-4}
        self.optimizer = torch.optim.AdamW(self.transformer.parameters(), **rates)
        self.losses: list[Any] = []
        with torch.no_grad():
            self.prompts, self.text_ids = self.encode_prompts()
            self.latents = self.encode_pictures()
        torch.cuda.empty_cache()

    def encode_prompts(self) -> tuple[Any, Any]:
        import torch
        from diffusers.training_utils import offload_models

        embeddings, ids = [], []
        with offload_models(self.pipeline.text_encoder, device="cuda", offload=True):
            for _ in range(PICTURES):
                embedded, text_ids = self.pipeline.encode_prompt(
                    prompt="", max_sequence_length=TOKENS, text_encoder_out_layers=TEXT_LAYERS
                )
                embeddings.append(embedded)
                ids.append(text_ids)
        return torch.cat(embeddings).to("cuda"), torch.cat(ids).to("cuda")

    def encode_pictures(self) -> Any:
        import torch
        from diffusers.training_utils import offload_models

        vae = self.pipeline.vae
        mean = vae.bn.running_mean.view(1, -1, 1, 1)
        deviation = torch.sqrt(vae.bn.running_var.view(1, -1, 1, 1) + vae.config.batch_norm_eps)
        found = []
        with offload_models(vae, device="cuda", offload=True):
            mean, deviation = mean.to(vae.device), deviation.to(vae.device)
            for _ in range(0, PICTURES, BATCH):
                pixels = torch.zeros(BATCH, 3, PIXELS, PIXELS).to(vae.device, torch.bfloat16)
                latents = self.pipeline._patchify_latents(vae.encode(pixels).latent_dist.mode())
                latents = (latents - mean) / deviation
                found.append(latents.to("cuda"))
        return torch.cat(found)

    def step(self, number: int) -> tuple[int, int]:
        """One step of training; bytes allocated and reserved at its end."""
        import torch

        picked = self.order[(number - 1) * BATCH : number * BATCH].to(device="cuda", dtype=torch.long)
        latents, prompts, text_ids = (
            kept.index_select(0, picked) for kept in (self.latents, self.prompts, self.text_ids)
        )
        ids = self.pipeline._prepare_latent_ids(latents).to(latents.device)
        noise = torch.randn_like(latents)
        times = torch.full((BATCH,), 500.0).to("cuda")
        sigmas = torch.full((BATCH, 1, 1, 1), 0.5, dtype=latents.dtype).to("cuda")
        noisy = (1.0 - sigmas) * latents + sigmas * noise
        packed = self.pipeline._pack_latents(noisy)
        self.optimizer.zero_grad(set_to_none=True)
        guess = self.transformer(
            hidden_states=packed, timestep=times / 1000, guidance=None, encoder_hidden_states=prompts,
            txt_ids=text_ids, img_ids=ids, return_dict=False,
        )[0]  # fmt: skip
        guess = guess[:, : packed.size(1)]
        side = PIXELS // 16
        guess = self.pipeline._unpack_latents_with_ids(guess, ids, side, side)
        weighting = torch.ones_like(sigmas)
        target = noise - latents
        squares = weighting.float() * (guess.float() - target.float()) ** 2
        loss = torch.mean(squares.reshape(target.shape[0], -1), 1)
        loss = loss.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.transformer.parameters(), 1.0)
        self.optimizer.step()
        if self.method == "adalora":
            self.transformer.base_model.update_and_allocate(number)
        self.losses.append(loss)
        self.kept = (guess, squares, target, noise, noisy, packed, prompts, latents, text_ids, ids, sigmas,
                     weighting, times, picked, loss)  # fmt: skip
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    def evaluate(self) -> None:
        """Two pictures for two prompts, compared by the encoder."""
        import torch
        from diffusers.training_utils import offload_models

        pipeline, device = self.pipeline, self.transformer.device
        self.transformer.eval()
        with (
            torch.inference_mode(),
            offload_models(pipeline.text_encoder, pipeline.vae, device=device, offload=True),
        ):
            for _ in range(2):
                pipeline(
                    prompt=[""], num_inference_steps=20, guidance_scale=3.5, height=PIXELS, width=PIXELS,
                    max_sequence_length=TOKENS, text_encoder_out_layers=TEXT_LAYERS, output_type="pt",
                )  # fmt: skip
            for _ in range(4):
                self.encoder(torch.zeros(1, 3, 224, 224).to(device))
        self.transformer.train()


def stretches(steps: int) -> Iterator[tuple[int, int, bool]]:
    """First step, length, and whether an evaluation follows, up to each `empty_cache`."""
    for first in range(1, steps + 1, EMPTY_EVERY):
        last = first + EMPTY_EVERY - 1
        yield first, EMPTY_EVERY, last % EVALUATE_EVERY == 0


def predict(job: Job) -> dict[str, Predicted]:
    import torch

    import memlens

    allocated: list[int] = []
    reserved: list[int] = []
    with memlens.simulate(gpu=CARD) as sim:
        torch.nn.Linear(1, 1).to("cuda")
        before = torch.cuda.max_memory_reserved()
        training = Training(job.row)
        for first, length, evaluates in stretches(EVALUATE_EVERY + EMPTY_EVERY):
            seen = [training.step(first + i) for i in range(ALIKE)]
            seen += [seen[-1]] * (length - ALIKE)
            allocated += [size - before for size, _ in seen]
            reserved += [size - before for _, size in seen]
            if evaluates:
                training.evaluate()
            torch.cuda.empty_cache()
        del training
    hundred = slice(0, EVALUATE_EVERY)
    return stated(
        sim.trace,
        {
            "allocated after a step": sum(allocated[hundred]) / EVALUATE_EVERY / MIB,
            "reserved, mean": sum(reserved[hundred]) / EVALUATE_EVERY / MIB,
            "reserved, most": max(reserved) / MIB,
        },
    )


FLUX = Table(
    "peft_flux_l40s", "Fine-tuning an image transformer with peft's methods on an L40S",
    "FLUX.2 klein (4 B parameters) in bfloat16 with adapters in float32, batch 2 of 512 x 512 pixels; "
    "recorded in 2026 with torch 2.12 and 2.13. The means are of the first 100 steps, the most of all "
    "steps, after evaluations, too.",
    jobs, predict, ("diffusers", "transformers", "peft"),
)  # fmt: skip
