"""From options to results: load, resume, train, save."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path

import torch

from attemper.errors import AttemperError, FileError, InputError
from experiments.zoo.checkpoints import remove_checkpoint, resume, save_checkpoint
from experiments.zoo.data import Dataset, load_dataset
from experiments.zoo.options import Command, parse_command
from experiments.zoo.results import is_finished, result_path, save_results, weights_path
from experiments.zoo.training import Run, StoppedError

REPORTS = 10  # so many lines about its loss does a run print, however many epochs it has


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line asks; returns the exit code: 2 for bad input, 1 where a run failed."""
    try:
        command = parse_command(words)
        return 1 if carry_out(prepare(command), command) else 0
    except AttemperError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last checkpoints", file=sys.stderr)
        return 130


def prepare(command: Command) -> list[Run]:
    """Those runs that are not finished, each ready for its next step."""
    try:
        command.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"--out {command.out}: cannot be made a folder: {error.strerror}") from None
    device = torch.device(command.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no GPU here")
    datasets: dict[tuple[str, str], Dataset] = {}
    runs = []
    torch.backends.cudnn.benchmark = True
    for options in command.runs:
        key = options.dataset, options.split
        if key not in datasets:
            datasets[key] = load_dataset(
                options.dataset,
                command.data,
                split=options.split,
                image_size=command.image_size,
                limit=command.limit,
            )
        run = Run(options, datasets[key], device)
        if command.fresh:
            start_over(run, command.out)
        if is_finished(run, command.out, with_weights=command.save_weights):
            remove_checkpoint(run, command.out)  # a kill may have come between the results and this
            tell(run, f"is finished: {result_path(run, command.out)} is there (--fresh trains it again)")
            continue
        resumed = resume(run, command.out)
        run.capture()
        standing = f"goes on after epoch {run.epochs_done}" if resumed else "ready"
        tell(run, f"{standing}, {run.steps_per_epoch} steps an epoch")
        runs.append(run)
    torch.backends.cudnn.benchmark = False  # from here on threads, whose timings would disturb each other
    return runs


def start_over(run: Run, out: Path) -> None:
    """Forget whatever there is of this run."""
    remove_checkpoint(run, out)
    result_path(run, out).unlink(missing_ok=True)
    weights_path(run, out).unlink(missing_ok=True)


def carry_out(runs: list[Run], command: Command) -> list[Run]:
    """Train the runs at the same time, each in a thread; returns those that failed."""
    if not runs:
        return []
    with ThreadPoolExecutor(len(runs)) as pool:
        futures: dict[Run, Future[None]] = {run: pool.submit(train_and_save, run, command) for run in runs}
        try:
            wait(futures.values())
        except KeyboardInterrupt:
            for run in runs:
                run.stopping.set()
            raise
    return [run for run, future in futures.items() if future.exception() is not None]


def train_and_save(run: Run, command: Command) -> None:
    """Train to the end, with a checkpoint now and then, and write the results."""
    try:
        with nullcontext() if run.stream is None else torch.cuda.stream(run.stream):
            train(run, command)
            line = save_results(run, command.out, with_weights=command.save_weights)
            remove_checkpoint(run, command.out)
            tell(run, line)
    except StoppedError:
        raise
    except Exception as error:  # one run's failure must not be silent, nor end the others
        tell(run, f"FAILED: {error if isinstance(error, AttemperError) else repr(error)}")
        raise


def train(run: Run, command: Command) -> None:
    """Train epoch by epoch; tells the loss, and saves whole epochs."""
    last = run.options.epochs
    start = time.monotonic() - run.seconds
    for epoch in run.epochs():
        report = epoch % max(1, last // REPORTS) == 0 or epoch in (1, last)
        save = epoch % command.checkpoint_every == 0 or epoch == last  # the last: evaluation can be interrupted too
        if not (report or save):
            continue
        loss = run.mean_loss()
        run.seconds = time.monotonic() - start
        if report:
            tell(run, f"epoch {epoch}/{last} loss {loss:.4f} {run.seconds:.0f} s")
        if not math.isfinite(loss):
            raise InputError(f"the loss is {loss} after epoch {epoch}; a smaller --lr or more --warmup-epochs may help")
        if save:
            save_checkpoint(run, command.out)


def tell(run: Run, what: str) -> None:
    """Print a line about a run, at once."""
    print(f"{run} {what}", flush=True)
