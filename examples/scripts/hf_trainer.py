"""A language model trained by Hugging Face's Trainer, made from a config: no weights, no hub.

memlens predict examples/scripts/hf_trainer.py --gpu "A100 40GB" -- --batch-size 8
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(Dataset):
    """Token numbers that mean nothing."""

    def __init__(self, count, length, vocabulary):
        self.count, self.length, self.vocabulary = count, length, vocabulary

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        ids = torch.randint(0, self.vocabulary, (self.length,))
        return {"input_ids": ids, "labels": ids.clone()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    config = GPT2Config(n_layer=4, n_embd=256, n_head=8, n_positions=args.length, vocab_size=5000)
    model = GPT2LMHeadModel(config)
    arguments = TrainingArguments(
        output_dir="output",
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        bf16=True,
        gradient_checkpointing=True,
        learning_rate=3e-4,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        logging_steps=1,
        save_steps=1,
        save_total_limit=1,
        eval_strategy="steps",
        eval_steps=1,
        dataloader_num_workers=2,
        report_to="none",
    )
    data = Texts(256, args.length, config.vocab_size)
    trainer = Trainer(
        model, arguments, train_dataset=data, eval_dataset=Texts(16, args.length, config.vocab_size)
    )
    trainer.train()
    trainer.save_model("final")


if __name__ == "__main__":
    main()
