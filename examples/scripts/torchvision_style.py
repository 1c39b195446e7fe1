"""Classification in the manner of torchvision's references: a model by name, a folder of pictures or made-up
ones, label smoothing, SGD with a step schedule, an averaged model, optionally several processes.

memlens predict examples/scripts/torchvision_style.py --gpu A10 -- --model resnet18 --batch-size 32
"""

import argparse
import os

import torch
import torchvision
from torch import nn
from torchvision import transforms
from torchvision.datasets import FakeData, ImageFolder


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-path", help="a folder with train/CLASS/*.jpg; made-up pictures without it")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--weights", help="such as DEFAULT")
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--epochs", type=int, default=90)
    return parser.parse_args()


def main():
    args = arguments()
    distributed = "RANK" in os.environ
    if distributed:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group(backend="nccl")
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    prepare = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    if args.data_path:
        data = ImageFolder(os.path.join(args.data_path, "train"), prepare)
    else:
        data = FakeData(200, (3, 256, 256), 10, prepare)
    sampler = (
        torch.utils.data.distributed.DistributedSampler(data)
        if distributed
        else torch.utils.data.RandomSampler(data)
    )
    loader = torch.utils.data.DataLoader(
        data, args.batch_size, sampler=sampler, num_workers=8, pin_memory=True
    )
    model = torchvision.models.get_model(args.model, weights=args.weights, num_classes=1000).to(device)
    if distributed:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    scaler = torch.amp.GradScaler("cuda") if args.amp else None
    for epoch in range(args.epochs):
        model.train()
        for number, (image, target) in enumerate(loader):
            image, target = image.to(device), target.to(device)
            with torch.autocast("cuda", enabled=scaler is not None):
                output = model(image)
                loss = criterion(output, target)
            optimizer.zero_grad()
            if scaler is not None:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
            averaged.update_parameters(model)
            _, best = output.topk(5, 1, True, True)
            right = best.t().eq(target[None]).flatten().sum(dtype=torch.float32) * (100.0 / len(image))
            print(f"epoch {epoch} batch {number} loss {loss.item():.4f} top-5 {right.item():.1f}")
        schedule.step()
        torch.save({"model": model.state_dict(), "epoch": epoch}, f"model_{epoch}.pth")


if __name__ == "__main__":
    main()
