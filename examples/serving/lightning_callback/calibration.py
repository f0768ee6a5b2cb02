"""A Lightning callback: calibrates on the validation batches as they pass, and keeps the map beside the checkpoint.

trainer = Trainer(callbacks=[Calibration()])
trainer.fit(model, train, val)
trainer.validate(model, val, ckpt_path="best")   # best.ckpt -> best.attemper.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from sklearn.base import clone

from attemper import BayesianTemperatureScaling
from attemper.calibrators import Provenance


class Calibration(Callback):
    """Fit a map in every validation epoch; logits are not kept.

    The module's ``validation_step`` returns ``{"logits": N×K, "labels": N}`` (other keys are left alone).

    Parameters
    ----------
    calibrator : recipe with ``partial_fit``: "ts", "ats" or "bayes" of `attemper.calibrators.METHODS`

    Attributes
    ----------
    calibrator_ : the recipe, fitted on the last validation epoch
    path_ : where its map was written; in ``trainer.validate`` only
    """

    def __init__(self, calibrator: Any = None) -> None:
        self.calibrator = BayesianTemperatureScaling() if calibrator is None else calibrator

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin anew."""
        if trainer.world_size > 1:
            raise RuntimeError(
                f"{trainer.world_size} processes: each sees a part of the data only. Validate in one, devices=1; or "
                "make an attemper.Sketch in each and add them up."
            )
        self.calibrator_ = clone(self.calibrator)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Take in one batch."""
        if trainer.sanity_checking:  # a few batches before training, to see that they run
            return
        if not isinstance(outputs, dict) or not {"logits", "labels"} <= outputs.keys():
            got = sorted(outputs) if isinstance(outputs, dict) else type(outputs).__name__
            raise TypeError(f'validation_step returned {got}; expected {{"logits": N×K, "labels": N}}')
        self.calibrator_.partial_fit(outputs["logits"].detach(), outputs["labels"])

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the temperature; after `validate`, write the map."""
        if trainer.sanity_checking:
            return
        pl_module.log("temperature", self.calibrator_.temperature_)
        if trainer.state.fn == "validate":
            checkpoint = Path(trainer.ckpt_path or Path(trainer.default_root_dir) / "last.ckpt")
            self.path_ = checkpoint.with_suffix(".attemper.json")
            self.calibrator_.save(self.path_, provenance=Provenance.now())
