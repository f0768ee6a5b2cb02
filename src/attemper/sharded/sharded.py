"""Fit, sketch or merge what lies in many places."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

from attemper._checks import whole
from attemper._paths import expand_paths
from attemper.calibrators import METHODS, Calibrator
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.errors import AttemperError, AttemperWarning, FileError, InputError, warn
from attemper.group_sketches import GroupSketches, load_sketch
from attemper.io import InputSpec, check_alike
from attemper.sharded.cache import ShardCache
from attemper.sharded.engines import Engine, Lost, open_engine
from attemper.sharded.shards import Shard, Shards, Sketched, as_shards
from attemper.sharded.tree import Tree
from attemper.sketch import ALL_PARTS, Part, Sketch

__all__ = ["fit_sharded", "merge_sketches", "sketch_sharded"]

AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)
Progress = Callable[[int, int], object]


def fit_sharded(
    calibrator: AnyCalibrator,
    shards: Shards,
    spec: InputSpec | None = None,
    *,
    engine: Any = None,
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> AnyCalibrator:
    """Fit a calibrator on shards in parallel; the result does not depend on the workers, to the last bit.

    Parameters
    ----------
    calibrator
        One that a sketch is enough for: temperature scaling, attended, Bayesian. Its own parameters specify whether the
        numbers are logits or probabilities, what stands for zeros, and the names of classes.
    shards
        Files or patterns, as for `attemper.io.open_scores`, one file a shard; or a list of `Scores` or
        of tuples (logits, labels) or (logits, labels, weights).
    spec, **options
        How to read files, as for `attemper.io.open_scores`: an `InputSpec`, or its fields as keywords.
    engine
        ``"serial"``, ``"threads"``, ``"processes"`` (joblib's), ``"dask"``, ``"ray"``, any
        `concurrent.futures.Executor`, or a Dask client. By default serial, and processes when there is more than one
        worker.
    workers
        How many to start; by default one for each core. For an executor of your own: how many shards it gets at a time.
    scheduler
        Address of a Dask scheduler or a Ray cluster; None starts one on this machine.
    retries
        How often a shard is tried again whose worker was lost or met an error of the operating system. Data that
        are wrong are not tried again. Dask and Ray also try the shards of lost workers again by themselves.
    cache_dir, resume
        A folder in which the sketches of finished files are stored as they arrive; with ``resume`` those that are
        there are used, if file and settings are what they were.
    progress
        Called with the number of finished shards and of all.

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
            f"one place. Use one of {', '.join(METHODS.from_sketch())}."
        )
    assert isinstance(calibrator, StreamingCalibrator)
    spec = (spec or InputSpec()).updated(**options)
    known = {"input": calibrator.input, "zeros_as": calibrator.zeros_as, "classes": calibrator.classes}
    given, spec = spec.non_defaults(), spec.updated(**{k: v for k, v in known.items() if v is not None})
    for name in known:
        if name in given and given[name] != getattr(spec, name):
            raise InputError(f"{name}: expected {getattr(spec, name)!r}, as the calibrator has, got {given[name]!r}")
    if calibrator.zeros_as is None and spec.zeros_as is not None:  # predictions would take zeros for something else
        made = f"{type(calibrator).__name__}(input='probs', zeros_as={spec.zeros_as!r})"
        raise InputError(f"zeros_as={spec.zeros_as!r}: the calibrator needs it too, for predictions. Use {made}.")
    shards = list(shards) if isinstance(shards, Iterator) else shards  # may be gone through more than once

    def sketch_with(**settings: Any) -> Sketch:
        return sketch_sharded(
            shards,
            spec,
            engine=opened,
            retries=retries,
            cache_dir=cache_dir,
            resume=resume,
            progress=progress,
            **settings,
        )

    with open_engine(engine, workers=workers, scheduler=scheduler) as opened:
        return calibrator.fit_passes(sketch_with)


def sketch_sharded(
    shards: Shards,
    spec: InputSpec | None = None,
    *,
    engine: Any = None,
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    t_range: tuple[float, float] | None = None,
    n_nodes: int = 64,
    thetas: Any = None,
    parts: Sequence[Part] = ALL_PARTS,
    unit: float | None = None,
    **options: Any,
) -> Sketch:
    """Sketch shards in parallel and add the sketches; see `fit_sharded` and `Sketch.of`.

    Examples
    --------
    >>> sketch_sharded([([[2.0, 1.0], [0.0, 3.0]], [0, 0]), ([[1.0, 4.0]], [1])]).n_samples
    3
    """
    retries = whole("retries", retries, at_least=0)
    settings = {"t_range": t_range, "n_nodes": n_nodes, "thetas": thetas, "parts": tuple(parts), "unit": unit}
    tasks = as_shards(shards, (spec or InputSpec()).updated(**options), settings)
    if resume and cache_dir is None:
        raise InputError("resume=True: expected cache_dir=…, the folder that the finished sketches are in")
    cache = None if cache_dir is None else ShardCache(cache_dir, tasks, resume=resume)
    with open_engine(engine, workers=workers, scheduler=scheduler) as opened:
        try:
            return _Run(tasks, opened.apart, cache, progress).total(opened, retries)
        except BaseException as error:
            if cache is None or not cache.count:
                raise
            note = (
                f"{cache.count} of {len(tasks)} shards are finished and cached in {cache.folder}. Use "
                f"resume=True to continue from there"
            )
            if isinstance(error, AttemperError):
                raise type(error)(f"{str(error).rstrip('.')}. {note}") from error.__cause__
            error.add_note(note)
            raise


class _Run:
    """One data set: sketches are taken in as they arrive, compared, cached, and added in a fixed order."""

    def __init__(self, shards: list[Shard], apart: bool, cache: ShardCache | None, progress: Progress | None) -> None:
        self.shards, self.apart, self.cache, self.progress = shards, apart, cache, progress
        in_memory = next((s.path for s in shards if apart and s.path.startswith("memory://")), None)
        if in_memory is not None:
            raise InputError(
                f"{in_memory}: lies in the memory of this process, which workers do not see. Use engine={'threads'!r}",
                param="engine",
            )
        self.tree: Tree[Sketch] = Tree(len(shards))
        self.done = 0
        self.first: dict[str, tuple[int, Sketched]] = {}  # the first shard, and the first with names of columns
        self.warned: set[type[AttemperWarning]] = set()  # each kind of warning is issued once

    def total(self, engine: Engine, retries: int) -> Sketch:
        """Work on every shard; return the sketch of all."""
        waiting = [number for number in range(len(self.shards)) if not self._take_cached(number)]
        tries: Counter[int] = Counter()
        while waiting:
            again = []
            with closing(engine.outcomes((number, self._task(number)) for number in waiting)) as outcomes:
                for number, outcome in outcomes:
                    if isinstance(outcome, Sketched | None):
                        self._take(number, outcome)
                        continue
                    tries[number] += 1
                    if not isinstance(outcome, Lost | OSError) or tries[number] > retries:
                        raise self._failure(number, outcome, tries[number])
                    again.append(number)
            waiting = again
        total, first = self.tree.total, self.shards[0].path
        if total is None:
            raise InputError(f"{first}: no rows, nor in any other shard; there is nothing to fit")
        if not total.weight:
            raise InputError(f"{first}: all weights are zero, so there is nothing to fit")
        return total

    def _task(self, number: int) -> Shard:
        shard = self.shards[number]
        if not self.apart or shard.item is not None:
            return shard
        # Another process may work in another folder.
        return replace(shard, path=_absolute(shard.path), labels=shard.labels and _absolute(shard.labels))

    def _take_cached(self, number: int) -> bool:
        cached = None if self.cache is None else self.cache.load(number)
        if cached is not None:
            self._add(number, cached)
        return cached is not None

    def _take(self, number: int, made: Sketched | None) -> None:
        if made is not None:
            made = replace(made, path=self.shards[number].path)
            for warning in made.warnings:
                if type(warning) not in self.warned:
                    self.warned.add(type(warning))
                    warn(str(warning), type(warning))
        self._add(number, made, self.cache)

    def _add(self, number: int, made: Sketched | None, cache: ShardCache | None = None) -> None:
        if made is not None:
            self._compare("any", number, made)
            if made.columns is not None:
                self._compare("table", number, made)
            if cache is not None:
                cache.save(number, made)
        self.tree.add(number, None if made is None else made.sketch)
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, len(self.shards))

    def _compare(self, kind: str, number: int, made: Sketched) -> None:
        """Compare a shard with the one of the lowest number so far, which an error takes for the right one."""
        lowest, first = self.first.get(kind, (number, made))
        if number < lowest:
            lowest, first, made = number, made, first
        check_alike([first, made])
        self.first[kind] = lowest, first

    def _failure(self, number: int, outcome: Exception | Lost, tries: int) -> Exception:
        path, times = self.shards[number].path, f" ({tries} times)" if tries > 1 else ""
        if isinstance(outcome, OSError):
            return FileError(f"{path}: {outcome.strerror or outcome}{times}")
        if isinstance(outcome, Exception):
            return outcome
        paths = " or ".join(self.shards[i].path for i in outcome.among) if len(outcome.among) <= 64 else path
        return AttemperError(
            f"{paths}: its worker was lost{times}: killed, out of memory, or its machine is gone "
            f"({outcome.reason.splitlines()[0]}). Use retries={2 * tries!r} to try such shards again; an "
            "executor of your own must be a new one"
        )


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 (links are not followed)


def merge_sketches(sketches: Iterable[Any] | str | os.PathLike[str]) -> Sketch | GroupSketches:
    """Add sketches, or the sketches in files, in a fixed order; or sketches by group, group by group.

    Examples
    --------
    >>> parts = [Sketch.of([[2.0, 1.0], [0.0, 3.0]], [0, 0]), Sketch.of([[1.0, 4.0]], [1])]
    >>> merge_sketches(parts).n_samples
    3
    """
    given = [sketches] if isinstance(sketches, str | os.PathLike) else list(sketches)
    in_memory = [s for s in given if isinstance(s, Sketch | GroupSketches)]
    if in_memory and len(in_memory) < len(given):
        raise InputError("sketches and files of sketches cannot be mixed; load the files with Sketch.load")
    things: Sequence[Any] = in_memory or expand_paths(given)
    tree: Tree[Any] = Tree(len(things))
    first: Any = None
    for number, thing in enumerate(things):
        part: Any = thing if in_memory else load_sketch(thing)
        first = first or part
        try:
            if type(first) is not type(part):
                raise InputError("one has groups and the other has none. Use sketches that all have groups, or none.")
            first.check_addable(part)
        except InputError as error:
            names = [f"sketch {n}" if in_memory else str(things[n]) for n in (0, number)]
            raise InputError(f"{' and '.join(names)}: {error}") from None
        tree.add(number, part)
    total: Sketch | GroupSketches | None = tree.total
    assert total is not None
    return total
