"""Half-trained networks on disk: whole or not there, read without running code, and never taken for another run's."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from attemper.errors import FileError
from experiments.files import atomic
from experiments.zoo.recipes import differences
from experiments.zoo.training import Run

FORMAT = 1


def checkpoint_path(run: Run, out: Path) -> Path:
    """Where the run's checkpoint is, if it has one."""
    return out / f"{run}.checkpoint"


def save_checkpoint(run: Run, out: Path) -> None:
    """Replace the run's checkpoint; a kill half-way leaves the one before."""
    with atomic(checkpoint_path(run, out)) as stream:
        torch.save({"format": FORMAT, "recipe": _identity(run), "state": run.state()}, stream)


def resume(run: Run, out: Path) -> bool:
    """Go on from the run's checkpoint, if there is one."""
    path = checkpoint_path(run, out)
    if not path.exists():
        return False
    content = _read(path)
    different = differences(content["recipe"], _identity(run))
    if different:
        raise FileError(
            f"{path} is of another run ({different}). Give its options to go on with it, another --out to keep it, "
            "or --fresh to throw it away"
        )
    try:
        run.restore(content["state"])
    except FileError as error:
        raise FileError(f"{path}: {error}; --fresh starts over") from None
    return True


def remove_checkpoint(run: Run, out: Path) -> None:
    """Remove the run's checkpoint, and what kills have left of unfinished ones."""
    path = checkpoint_path(run, out)
    for leftover in [path, *out.glob(f".{path.name}.*.part")]:
        leftover.unlink(missing_ok=True)


def _identity(run: Run) -> dict[str, Any]:
    """Recipe and device: the random generators of CPU and GPU do not understand each other's states."""
    return {**run.recipe, "device": run.device.type, "precision": run.precision}


def _read(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums
            damaged = archive.testzip()
        if damaged is not None:
            raise FileError(f"{damaged} is damaged")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if content["format"] != FORMAT or not isinstance(content["recipe"], dict) or "state" not in content:
            raise FileError("it is of another version")
    except Exception as error:  # on damaged bytes zipfile and torch raise whatever their inside runs into
        reason = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        raise FileError(f"{path}: cannot be read as a checkpoint ({reason}); --fresh starts over") from None
    return content
