"""Many files: each becomes a sketch, in parallel through joblib; sketches are added in order, the sum is fitted.

``with joblib.parallel_config(backend="dask")`` (or ``"ray"``) around a call sends the files to a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs

from attemper._checks import whole
from attemper._paths import expand_paths
from attemper.calibrators import METHODS, Calibrator
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.data.scores import Scores
from attemper.errors import AttemperWarning, InputError, InputTypeError, collected_warnings, warn
from attemper.group_sketches import GroupSketches, load_sketch
from attemper.io import InputSpec, check_alike, open_scores, paired
from attemper.sketch import ALL_PARTS, Part, Sketch

__all__ = ["fit_sharded", "merge_sketches", "sketch_pieces", "sketch_sharded"]

AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)
Progress = Callable[[int, int], object]
Path = str | os.PathLike[str]
Shards = Path | Iterable[Path] | Iterable[Scores | Sequence[Any]]


def fit_sharded(
    calibrator: AnyCalibrator,
    shards: Shards,
    spec: InputSpec | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> AnyCalibrator:
    """Fit a calibrator on shards in parallel; the result does not depend on the workers, to the last bit.

    Parameters
    ----------
    calibrator
        One that a sketch is enough for: temperature scaling, attended, Bayesian.
    shards
        Files or patterns, as for `attemper.io.open_scores`, one file a shard; or a list of `Scores` or
        of tuples (logits, labels) or (logits, labels, weights).
    spec, **options
        How to read files, as for `attemper.io.open_scores`: an `InputSpec`, or its fields as keywords.
    workers
        How many processes; by default what `joblib.parallel_config` says, or one.
    progress
        Called with the number of finished shards and of all.

    Examples
    --------
    >>> from attemper import TemperatureScaling
    >>> shards = [([[2.0, 1.0], [0.0, 3.0]], [0, 0]), ([[1.0, 4.0]], [1])]
    >>> fit_sharded(TemperatureScaling(), shards).fit_report_.n_samples
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
    return calibrator.fit_passes(
        lambda **settings: sketch_sharded(shards, spec, workers=workers, progress=progress, **settings)
    )


def sketch_sharded(
    shards: Shards,
    spec: InputSpec | None = None,
    *,
    workers: int | None = None,
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
    workers = None if workers is None else whole("workers", workers)
    settings = {"t_range": t_range, "n_nodes": n_nodes, "thetas": thetas, "parts": tuple(parts), "unit": unit}
    n_jobs = effective_n_jobs(workers)
    tasks = _tasks(shards, (spec or InputSpec()).updated(**options), apart=n_jobs > 1)
    total: Sketch | None = None
    first: dict[bool, _Made] = {}  # the first shard, and the first with names of columns
    warned: set[type[AttemperWarning]] = set()  # each kind of warning is issued once
    at_once = 1 if n_jobs == 1 else 8 * n_jobs
    with Parallel(workers) as parallel:
        for begin in range(0, len(tasks), at_once):
            these = tasks[begin : begin + at_once]
            for made in parallel(delayed(_sketch_shard)(*task, settings) for task in these):
                if made is None:
                    continue
                for warning in made.warnings:
                    if type(warning) not in warned:
                        warned.add(type(warning))
                        warn(str(warning), type(warning))
                check_alike([first.setdefault(False, made), made])
                if made.columns is not None:
                    check_alike([first.setdefault(True, made), made])
                total = made.sketch if total is None else total + made.sketch
            if progress is not None:
                progress(begin + len(these), len(tasks))
    if total is None:
        raise InputError(f"{tasks[0][0]}: no rows, nor in any other shard; there is nothing to fit")
    if not total.weight:
        raise InputError(f"{tasks[0][0]}: all weights are zero, so there is nothing to fit")
    return total


def sketch_pieces(pieces: Iterable[Scores], **settings: Any) -> Sketch | None:
    """Sketch a data set that comes in pieces; None if there is none.

    >>> halves = [Scores.from_logits([[2.0, 1.0]], [0]), Scores.from_logits([[0.0, 3.0], [1.0, 4.0]], [0, 1])]
    >>> sketch_pieces(halves).n_samples
    3
    """
    total: Sketch | None = None
    for piece in pieces:
        part = Sketch.of(piece, **settings)
        total = part if total is None else total + part
        settings = settings | {"t_range": total.t_range, "unit": total.unit}  # the first piece shows the scale
    return total


def merge_sketches(sketches: Iterable[Any] | str | os.PathLike[str]) -> Sketch | GroupSketches:
    """Add sketches, or the sketches in files, in their order; or sketches by group, group by group.

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
    total: Any = None
    for number, thing in enumerate(things):
        part: Any = thing if in_memory else load_sketch(thing)
        try:
            if total is not None and type(total) is not type(part):
                raise InputError("one has groups and the other has none. Use sketches that all have groups, or none.")
            total = part if total is None else total + part
        except InputError as error:
            names = [f"sketch {n}" if in_memory else str(things[n]) for n in (0, number)]
            raise InputError(f"{' and '.join(names)}: {error}") from None
    assert isinstance(total, Sketch | GroupSketches)
    return total


@dataclass(frozen=True)
class _Made:
    """What a worker sends back: the sketch, and what shards of one data set must have in common."""

    path: str
    n_classes: int
    columns: tuple[str, ...] | None
    sketch: Sketch
    warnings: tuple[AttemperWarning, ...]


def _tasks(given: Any, spec: InputSpec, *, apart: bool) -> list[tuple[str, Any, InputSpec]]:
    """Name, item in memory (None for a file) and how to read it of each shard; nothing is opened."""
    items: list[Any] = [given] if isinstance(given, str | os.PathLike) else list(given)
    if all(isinstance(item, str | os.PathLike) for item in items):

        def named(path: Any) -> str:  # another process may work in another folder
            return os.path.abspath(path) if apart and "://" not in str(path) else str(path)  # noqa: PTH100

        return [(named(path), None, spec.updated(labels=y and named(y))) for path, y in paired(items, spec)]
    return [(f"shard {number}", _scores(item, spec), spec) for number, item in enumerate(items)]


def _scores(item: Any, spec: InputSpec) -> Scores:
    if isinstance(item, Scores) and item.input == spec.input:
        return item
    if not (isinstance(item, tuple) and len(item) in (2, 3)):
        raise InputTypeError(f"shards: expected paths, Scores of {spec.input}, or tuples (logits, labels[, weights])")
    logits, labels, *weights = item
    names = ("classes", "axis", "ignore_index", "max_pixels")
    options = {name: getattr(spec, name) for name in names}
    return spec.scores(logits, labels, sample_weight=weights[0] if weights else None, **options)


def _sketch_shard(path: str, scores: Scores | None, spec: InputSpec, settings: dict[str, Any]) -> _Made | None:
    """Sketch one shard in bounded memory; None if it has no rows and that is allowed."""
    names = None
    with collected_warnings() as warnings:
        if scores is None:
            files = open_scores(path, spec)
            sketch = sketch_pieces(files.pieces(), **settings)
            # Those of a table, or of an array by its own class_names.
            names = files.columns or (files.spec.class_names if spec.classes is None else None)
        else:
            sketch = Sketch.of(scores, **settings)
    return None if sketch is None else _Made(path, sketch.n_classes, names, sketch, tuple(warnings))
