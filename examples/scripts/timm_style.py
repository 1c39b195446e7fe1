"""Training in the manner of timm's train.py: its factory for models, optimizers, schedules and averaging.

memlens predict examples/scripts/timm_style.py --gpu "RTX 4090" -- --model vit_tiny_patch16_224 --amp
"""

import argparse
import logging
import time
from contextlib import nullcontext
from pathlib import Path

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, ModelEmaV3, NativeScaler, random_seed
from torch.utils.data import DataLoader, Dataset

_log = logging.getLogger("train")


class Pictures(Dataset):
    def __init__(self, size, classes):
        self.size, self.classes = size, classes

    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.rand(self.size), index % self.classes


def main():
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet26")
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--opt", default="lamb")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--grad-checkpointing", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    random_seed(42, 0)
    device = torch.device("cuda")
    model = timm.create_model(args.model, pretrained=True, num_classes=100, drop_path_rate=0.1)
    if args.grad_checkpointing:
        model.set_grad_checkpointing(enable=True)
    model.to(device)
    if args.channels_last:
        model.to(memory_format=torch.channels_last)
    _log.info("%s has %d parameters", args.model, sum(p.numel() for p in model.parameters()))
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=100)
    data = Pictures(model.pretrained_cfg["input_size"], 100)
    loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=4, pin_memory=True, drop_last=True)
    optimizer = create_optimizer_v2(model, opt=args.opt, lr=5e-3, weight_decay=0.02)
    ema = ModelEmaV3(model, decay=0.9998)
    schedule, epochs = create_scheduler_v2(
        optimizer, sched="cosine", num_epochs=args.epochs, updates_per_epoch=len(loader)
    )
    scaler = NativeScaler() if args.amp else None
    criterion = SoftTargetCrossEntropy().to(device)
    output = Path("output") / f"{time.strftime('%Y%m%d')}-{args.model}"
    output.mkdir(parents=True, exist_ok=True)
    for epoch in range(epochs):
        model.train()
        losses = AverageMeter()
        for number, (images, labels) in enumerate(loader):
            images, labels = images.to(device), labels.to(device)
            if args.channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            images, labels = mixup(images, labels)
            with torch.autocast("cuda") if args.amp else nullcontext():
                loss = criterion(model(images), labels)
            if scaler is not None:
                scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
            else:
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            optimizer.zero_grad()
            ema.update(model)
            torch.cuda.synchronize()
            losses.update(loss.item(), images.size(0))
            _log.info("epoch %d batch %d loss %.3f", epoch, number, losses.avg)
        schedule.step(epoch + 1, losses.avg)
        torch.save(
            {"state_dict": model.state_dict(), "ema": ema.module.state_dict()}, output / "last.pth.tar"
        )


if __name__ == "__main__":
    main()
