"""Train a small network on the digits of scikit-learn with Lightning, and calibrate it by the way.

python examples/serving/lightning_callback/train.py run/
"""

from __future__ import annotations

import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from calibration import Calibration
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class Digits(pl.LightningModule):
    """An MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.net(x)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Return the loss."""
        x, y = batch
        return cross_entropy(self(x), y)

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> dict[str, torch.Tensor]:
        """Log the loss; return what the callback takes."""
        x, y = batch
        logits = self(x)
        self.log("val_loss", cross_entropy(logits, y))
        return {"logits": logits, "labels": y}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def data() -> tuple[TensorDataset, TensorDataset]:
    """Return images to train on and images to validate on."""
    X, y = load_digits(return_X_y=True)
    whole = TensorDataset(torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y))
    train, val = torch.utils.data.random_split(whole, [0.3, 0.7], torch.Generator().manual_seed(0))
    return train, val


def main(folder: Path) -> tuple[Calibration, Digits, Path]:
    """Train, then calibrate the best checkpoint."""
    pl.seed_everything(0, verbose=False)
    train, val = data()
    val_loader = DataLoader(val, batch_size=256)
    model, calibration, best = Digits(), Calibration(), ModelCheckpoint(folder, "best", monitor="val_loss")
    trainer = pl.Trainer(
        default_root_dir=folder,
        callbacks=[calibration, best],
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    trainer.fit(model, DataLoader(train, batch_size=64, shuffle=True), val_loader)
    trainer.validate(model, val_loader, ckpt_path=best.best_model_path, verbose=False)
    return calibration, model, Path(best.best_model_path)


if __name__ == "__main__":
    fitted = main(Path(sys.argv[1] if len(sys.argv) > 1 else "run"))[0]
    print(*fitted.calibrator_.describe(), f"written to {fitted.path_}", sep="\n")
