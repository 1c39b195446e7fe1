"""A LightningModule under Lightning's Trainer, with callbacks, a CSV logger and validation.

memlens predict examples/scripts/lightning_trainer.py --gpu "RTX 4090"
"""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(L.LightningModule):
    def __init__(self, width=512, rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 32))
        self.decoder = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 784))

    def training_step(self, batch, index):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        (x,) = batch
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]


def main():
    L.seed_everything(0)
    train = DataLoader(
        TensorDataset(torch.rand(512, 784)), 64, shuffle=True, num_workers=2, persistent_workers=True
    )
    valid = DataLoader(TensorDataset(torch.rand(64, 784)), 64, num_workers=2)
    trainer = L.Trainer(
        max_epochs=5,
        accelerator="gpu",
        devices=1,
        precision="16-mixed",
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        log_every_n_steps=1,
        logger=CSVLogger("logs"),
        callbacks=[
            ModelCheckpoint("checkpoints", monitor="val_loss"),
            EarlyStopping("val_loss"),
            LearningRateMonitor(),
        ],
    )
    trainer.fit(Autoencoder(), train, valid)


if __name__ == "__main__":
    main()
