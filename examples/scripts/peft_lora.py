"""LoRA with peft on a language model made from a config, in bfloat16 and with gradient checkpointing.

memlens predict examples/scripts/peft_lora.py --gpu "RTX 4090" -- --rank 16
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    args = parser.parse_args()
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=4,
        num_attention_heads=16,
    )
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    lora = LoraConfig(r=args.rank, lora_alpha=32, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    schedule = get_cosine_schedule_with_warmup(optimizer, 10, 100)
    model.train()
    for step in range(100):
        ids = torch.randint(0, config.vocab_size, (2, args.length)).cuda()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        print(step, loss.item())
    model.save_pretrained("adapter")


if __name__ == "__main__":
    main()
