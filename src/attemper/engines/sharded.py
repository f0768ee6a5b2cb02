"""Fit, sketch or merge what lies in many places."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from attemper.calibrators import Calibrator
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.engines.kept import Kept
from attemper.engines.pools import open_workers
from attemper.engines.run import Progress, Run
from attemper.engines.shards import Shards, as_shards
from attemper.engines.tree import Tree
from attemper.errors import AttemperError, InputError, option
from attemper.files import expanded
from attemper.sketch import ALL_PARTS, DEFAULT_T_RANGE, Part, Sketch

__all__ = ["fit_sharded", "merged", "sketch_sharded"]

AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)
# What `fit_sharded` takes of `open_scores`; the rest are parameters of the calibrator.
READING = {
    *("labels", "logits_key", "labels_key", "weights_key", "skip_empty"),
    *("mask_key", "ignore_index", "next_token", "columns", "labels_are"),
}


def fit_sharded(
    calibrator: AnyCalibrator,
    shards: Shards,
    *,
    engine: Any = None,
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 0,
    keep: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **reading: Any,
) -> AnyCalibrator:
    """Fit a calibrator on shards that are worked on side by side; the answer is the same to the last bit.

    Parameters
    ----------
    calibrator
        One that a sketch is enough for: temperature scaling, attended, Bayesian. Whether the numbers are
        logits or probabilities, their floor and the names of classes are its own parameters.
    shards
        Files or patterns, as for `attemper.files.open_scores`, one file a shard; or a list of `Scores` or
        of tuples (logits, labels) or (logits, labels, weights).
    engine
        ``"serial"``, ``"threads"``, ``"processes"``, ``"dask"``, ``"ray"``, any `concurrent.futures.Executor`, or a
        Dask client. By default serial, and processes when there is more than one worker.
    workers
        How many to start; by default one for each core. For an executor of your own: how many shards it gets at a time.
    scheduler
        Address of a Dask scheduler or a Ray cluster; None starts one on this machine.
    retries
        How often a shard is tried again whose worker was lost or met an error of the operating system. Data that
        are wrong are not tried again.
    keep, resume
        A folder in which the sketches of finished files are stored as they arrive; with ``resume`` those that are
        there are used, if file and settings are what they were.
    progress
        Called with the number of finished shards and of all.
    **reading
        Options of `attemper.files.open_scores`: ``labels``, ``logits_key``, ``labels_key``, ``weights_key``,
        ``skip_empty``, and those of tokens.

    Examples
    --------
    >>> from attemper import TemperatureScaling
    >>> shards = [([[2.0, 1.0], [0.0, 3.0]], [0, 0]), ([[1.0, 4.0]], [1])]
    >>> fit_sharded(TemperatureScaling(), shards, engine="threads", workers=2).fit_report_.n_samples
    3
    """
    if calibrator.sketch_parts() is None:
        raise InputError(
            f"{calibrator.method} cannot be fitted from sketches of shards: it needs the logits themselves, all in "
            "one place. ts, ats and bayes can."
        )
    unknown = sorted(set(reading) - READING)
    if unknown:
        raise InputError(f"{unknown[0]}: not known here; what the numbers are is told by the calibrator's parameters")
    assert isinstance(calibrator, StreamingCalibrator)
    shards = list(shards) if isinstance(shards, Iterator) else shards  # may be gone through more than once

    def sketch_with(**settings: Any) -> Sketch:
        return sketch_sharded(
            shards,
            engine=pool,
            retries=retries,
            keep=keep,
            resume=resume,
            progress=progress,
            probs=calibrator.input == "probs",
            floor=calibrator.floor,
            classes=calibrator.classes,
            **settings,
            **reading,
        )

    with open_workers(engine, workers=workers, scheduler=scheduler, retries=retries) as pool:
        return calibrator.fit_passes(sketch_with)


def sketch_sharded(
    shards: Shards,
    *,
    engine: Any = None,
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 0,
    keep: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    t_range: tuple[float, float] = DEFAULT_T_RANGE,
    n_nodes: int = 64,
    thetas: Any = None,
    parts: Sequence[Part] = ALL_PARTS,
    **reading: Any,
) -> Sketch:
    """Sketch shards side by side and add the sketches; see `fit_sharded` and `Sketch.of`.

    ``reading`` are the options of `attemper.files.open_scores`.

    Examples
    --------
    >>> sketch_sharded([([[2.0, 1.0], [0.0, 3.0]], [0, 0]), ([[1.0, 4.0]], [1])]).n_samples
    3
    """
    settings = {"t_range": t_range, "n_nodes": n_nodes, "thetas": thetas, "parts": tuple(parts)}
    tasks = as_shards(shards, reading, settings)
    if resume and keep is None:
        raise InputError("resume=True: say with keep=… in which folder the finished sketches are")
    kept = None if keep is None else Kept(keep, tasks, resume=resume)
    with open_workers(engine, workers=workers, scheduler=scheduler, retries=retries) as pool:
        try:
            return Run(tasks, pool, retries, kept, progress).total()
        except BaseException as error:
            if kept is None or not kept.count:
                raise
            note = (
                f"{kept.count} of {len(tasks)} shards are finished and kept in {kept.folder}; go on from there with "
                f"{option('resume=True', '--resume')}"
            )
            if isinstance(error, AttemperError):
                raise type(error)(f"{str(error).rstrip('.')}. {note}") from error.__cause__
            error.add_note(note)
            raise


def merged(sketches: Iterable[Sketch | str | os.PathLike[str]] | str | os.PathLike[str]) -> Sketch:
    """Add sketches, or the sketches in files, in a fixed order.

    Examples
    --------
    >>> parts = [Sketch.of([[2.0, 1.0], [0.0, 3.0]], [0, 0]), Sketch.of([[1.0, 4.0]], [1])]
    >>> merged(parts).n_samples
    3
    """
    given = [sketches] if isinstance(sketches, str | os.PathLike) else list(sketches)
    in_memory = [s for s in given if isinstance(s, Sketch)]
    if in_memory and len(in_memory) < len(given):
        raise InputError("sketches and files of sketches cannot be mixed; load the files with Sketch.load")
    things: Sequence[Any] = in_memory or expanded([s for s in given if not isinstance(s, Sketch)])
    tree: Tree[Sketch] = Tree(len(things))
    first: Sketch | None = None
    for number, thing in enumerate(things):
        part = thing if isinstance(thing, Sketch) else Sketch.load(thing)
        first = first or part
        try:
            first.check_addable(part)
        except InputError as error:
            names = [f"sketch {n}" if in_memory else str(things[n]) for n in (0, number)]
            raise InputError(f"{' and '.join(names)}: {error}") from None
        tree.add(number, part)
    assert tree.total is not None
    return tree.total
