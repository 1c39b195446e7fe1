"""QLoRA: a language model whose linear layers are 4-bit (nf4, double quantisation), trained through adapters
with bitsandbytes' 8-bit paged AdamW.

memlens predict examples/scripts/qlora_4bit.py --gpu T4
"""

import torch
from bitsandbytes.optim import PagedAdamW8bit
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM
from transformers.integrations import replace_with_bnb_linear


def main():
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=4,
        num_attention_heads=16,
    )
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float16,
    )
    model = LlamaForCausalLM(config).to(torch.float16)
    model = replace_with_bnb_linear(
        model, modules_to_not_convert=["lm_head"], quantization_config=quantization
    )
    model.is_loaded_in_4bit = True
    model = model.to("cuda")
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.print_trainable_parameters()
    optimizer = PagedAdamW8bit([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    model.train()
    for step in range(50):
        ids = torch.randint(0, config.vocab_size, (1, 512), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


if __name__ == "__main__":
    main()
