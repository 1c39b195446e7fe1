"""A loop of one's own under Hugging Face's accelerate: mixed precision, accumulation, clipping, gathering.

memlens predict examples/scripts/accelerate_loop.py --gpu "RTX 4090"
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    set_seed(0)
    data = TensorDataset(torch.randint(0, 1000, (512, 64)), torch.randint(0, 4, (512,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, pin_memory=True)
    model = nn.Sequential(
        nn.Embedding(1000, 256),
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), 3, enable_nested_tensor=False
        ),
        nn.Flatten(),
        nn.Linear(64 * 256, 4),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=200)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for epoch in range(5):
        model.train()
        for tokens, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(tokens), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses = accelerator.gather(loss.detach().repeat(32))
            accelerator.print(f"epoch {epoch} loss {losses.mean().item():.3f}")
        accelerator.wait_for_everyone()
        accelerator.save_state("state")
        accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")


if __name__ == "__main__":
    main()
