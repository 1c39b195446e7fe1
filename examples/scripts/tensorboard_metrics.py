"""A loop that measures itself: torchmetrics, a TensorBoard writer, a CSV file and a progress bar.

memlens predict examples/scripts/tensorboard_metrics.py --gpu T4
"""

import csv
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix
from tqdm import tqdm

CLASSES = 20


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(512, 128), torch.randint(0, CLASSES, (512,)))
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, pin_memory=True)
    model = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Dropout(0.5), nn.Linear(1024, CLASSES)).to(
        device
    )
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    metrics = MetricCollection(
        {"accuracy": MulticlassAccuracy(CLASSES), "confusion": MulticlassConfusionMatrix(CLASSES)}
    ).to(device)
    mean = MeanMetric().to(device)
    writer = SummaryWriter("runs/example")
    folder = Path("logs")
    folder.mkdir(exist_ok=True)
    with open(folder / "losses.csv", "w", newline="") as file:
        rows = csv.DictWriter(file, ["step", "loss"])
        rows.writeheader()
        step = 0
        for epoch in range(10):
            metrics.reset()
            bar = tqdm(loader, desc=f"epoch {epoch}")
            for features, labels in bar:
                features, labels = features.to(device), labels.to(device)
                scores = model(features)
                loss = nn.functional.cross_entropy(scores, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.update(scores.softmax(1), labels)
                mean.update(loss)
                writer.add_scalar("loss", loss, step)
                writer.add_histogram("weights", model[0].weight, step)
                rows.writerow({"step": step, "loss": loss.item()})
                bar.set_postfix(loss=f"{loss:.3f}", mean=mean.compute().item())
                step += 1
            writer.add_scalar("accuracy", metrics.compute()["accuracy"], epoch)
    writer.close()


if __name__ == "__main__":
    main()
