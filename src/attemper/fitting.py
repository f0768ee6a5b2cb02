"""Fit on whatever the data are in: arrays, `Scores`, a sketch, files, or shards for many workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from attemper._checks import same_classes
from attemper._paths import PathOrURL, expand_paths
from attemper.calibrators import METHODS, Calibrator
from attemper.calibrators.streaming import StreamingCalibrator
from attemper.data.columns import check_order
from attemper.data.labels import as_names
from attemper.data.numerals import is_number
from attemper.data.scores import Scores
from attemper.errors import AttemperError, InputError, InputTypeError, listed
from attemper.group_sketches import GroupSketches
from attemper.io import InputSpec, ScoreFiles, open_scores
from attemper.io.sources import paired
from attemper.sharded import fit_sharded, merge_sketches, sketch_pieces, sketch_sharded
from attemper.sketch import ALL_PARTS, Part, Sketch

__all__ = ["fit_source", "open_for", "sketch_source", "spec_for"]

# A file whose logits take no more memory is fitted as arrays are; a larger one piece by piece, through a sketch.
IN_MEMORY_BYTES = 256 << 20

AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)
Progress = Callable[[int, int | None], object]

SHARDING = ("workers",)


def fit_source(
    calibrator: AnyCalibrator,
    source: Any,
    spec: InputSpec | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> AnyCalibrator:
    """Fit a calibrator on arrays, sketches or files; `attemper fit` does the same.

    Parameters
    ----------
    calibrator
        The recipe. Whether the numbers are logits or probabilities, what zeros stand for and the names of classes are
        its own parameters (``input``, ``zeros_as``, ``classes``).
    source
        Arrays, as a tuple (logits, labels) or (logits, labels, weights); a `Scores`; a `Sketch` or `GroupSketches`;
        files or patterns, as for `attemper.io.open_scores`; sketches in files (.json); or a list of `Scores` or of
        tuples, one for each shard. One file of at most 256 MiB of logits is loaded. Larger ones, and several files,
        are read piece by piece where a sketch is enough for the recipe, else into memory.
    spec
        How to read files; its fields are keywords too.
    progress
        Called with the number of finished rows, or files, and of all; the latter may be None.
    **options
        Fields of ``spec``; and ``workers``, how many processes work on several files.

    Examples
    --------
    >>> from attemper import TemperatureScaling, Sketch
    >>> logits, labels = [[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]], [0, 1, 0, 1]
    >>> round(fit_source(TemperatureScaling(), (logits, labels)).temperature_, 3)
    1.82
    >>> round(fit_source(TemperatureScaling(), Sketch.of(logits, labels)).temperature_, 3)
    1.82
    """
    fit_and_return_data(calibrator, source, spec, progress=progress, **options)
    return calibrator


def fit_and_return_data(
    calibrator: Calibrator,
    source: Any,
    spec: InputSpec | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Scores | Sketch | GroupSketches | None:
    """Fit, and return the data as they were fitted on; None for arrays."""
    source = list(source) if isinstance(source, Iterator) else source  # gone through more than once
    data = _fit(calibrator, source, spec, progress=progress, **options)
    files = source if isinstance(source, ScoreFiles) else None
    if files is None and isinstance(data, Sketch) and not isinstance(source, Sketch):
        files = _first_file(source, _updated(spec, {k: v for k, v in options.items() if k not in SHARDING}))
    names = options.get("classes", spec and spec.classes) if files is None else files.spec.classes
    # What a sketch does not hold.
    if names is not None and calibrator.classes is None:
        calibrator.classes_ = np.asarray(as_names(names, calibrator.n_features_in_))
    if files is not None and files.columns is not None:
        calibrator.feature_names_in_ = np.array(files.columns, dtype=object)
    return data


def _first_file(source: Any, spec: InputSpec) -> ScoreFiles | None:
    """Open the first of these files with rows, which names classes and columns; None where they are sketches."""
    paths = _paths(source)
    for path, labels in [] if paths is None or _are_sketches(paths) else paired(paths, spec):
        files = open_scores(path, spec.updated(labels=labels))
        if files.columns is None or files.readers[0].first_label is not None:
            return files
    return None


def _fit(
    calibrator: Calibrator,
    source: Any,
    spec: InputSpec | None,
    *,
    progress: Progress | None,
    **options: Any,
) -> Scores | Sketch | GroupSketches | None:
    if not isinstance(calibrator, Calibrator):
        raise InputTypeError(f"calibrator: expected one such as TemperatureScaling(), got {calibrator!r}")
    sharding = {name: options.pop(name) for name in SHARDING if name in options}
    given = _updated(spec, options)
    spec = spec_for(calibrator, given)
    if given.zeros_as is not None and calibrator.zeros_as is None:  # predictions would take zeros for something else
        made = f"{type(calibrator).__name__}(input='probs', zeros_as={given.zeros_as!r})"
        raise InputError(f"zeros_as={given.zeros_as!r}: the calibrator needs it too, for predictions. Use {made}.")
    if isinstance(source, Scores | Sketch | GroupSketches) or _is_arrays(source):
        _reject_options("arrays" if isinstance(source, tuple) else type(source).__name__, given, sharding)
        if isinstance(source, Sketch | GroupSketches):
            calibrator.fit_sketch(source)
        elif isinstance(source, Scores):
            calibrator.fit(source)
        else:
            calibrator.fit(*source)
        return source if isinstance(source, Scores | Sketch | GroupSketches) else None
    files = None
    if isinstance(source, ScoreFiles):
        if given not in (InputSpec(), source.spec, source.spec.updated(classes=None)):  # files may name the classes
            raise InputError(f"{next(iter(given.non_defaults()))}: these files are open; pass it to open_scores")
        spec = spec_for(calibrator, source.spec)
        files = source if spec == source.spec else open_scores([reader.path for reader in source.readers], spec)
    paths = [reader.path for reader in files.readers] if files is not None else _paths(source)
    if paths is not None and _are_sketches(paths):
        _reject_options(str(paths[0]), given, sharding)
        total = merge_sketches(paths)
        calibrator.fit_sketch(total)
        return total
    if calibrator.sketch_parts() is None:
        if sharding or paths is None:
            what = f"{_name_of(sharding)}: " if sharding else ""
            raise InputError(
                f"{what}{calibrator.method} cannot be fitted from sketches of shards: it needs the logits themselves, "
                f"all in one place. Use one of {', '.join(METHODS.from_sketch())}."
            )
        files = files or open_scores(paths, spec)
    elif spec.groups_key is not None and paths is not None:
        files = _group_files(files, paths, spec, sharding)
        if files.n_bytes > IN_MEMORY_BYTES:
            assert isinstance(calibrator, StreamingCalibrator)
            by_group = _sketch_groups(files, progress, **calibrator._sketch_settings())
            calibrator.fit_sketch(by_group)
            _note_clusters(calibrator, spec)
            return by_group
    elif paths is None or ((len(paths) > 1 or sharding) and not _by_rows(spec, paths, sharding)):
        shards = source if paths is None else paths
        fit_sharded(calibrator, shards, spec, progress=progress, **sharding)
        if paths is not None and spec.axis is not None and spec.max_pixels != 1:
            first = open_scores(paths[0], spec.updated(labels=spec.labels and spec.labels[:1]))
            _note_pixels(calibrator, first)
        _note_clusters(calibrator, spec)
        return calibrator.sketch_
    else:
        files = files or open_scores(paths, spec)
        if files.n_bytes > IN_MEMORY_BYTES:
            assert isinstance(calibrator, StreamingCalibrator)
            calibrator.fit_passes(lambda **settings: _sketch(files, progress, **settings))
            _note_pixels(calibrator, files)
            _note_clusters(calibrator, spec)
            return calibrator.sketch_
    scores = files.load(progress)
    calibrator.fit(scores)
    return scores


def _group_files(
    files: ScoreFiles | None, paths: list[PathOrURL], spec: InputSpec, sharding: dict[str, Any]
) -> ScoreFiles:
    """Open files with groups, which one process reads."""
    if sharding:
        flag = "groups_key"
        raise InputError(
            f"{_name_of(sharding)}: files with {flag} are read by one process. Leave it out; or sketch each file with "
            f"GroupSketches.of, and fit on all sketches."
        )
    return files or open_scores(paths, spec)


def _sketch_groups(files: ScoreFiles, progress: Progress | None, **settings: Any) -> GroupSketches:
    """Sketch the groups of files, piece by piece."""
    total: GroupSketches | None = None
    for piece in files.watched(progress):
        part = GroupSketches.of(piece, **settings)
        total = part if total is None else total + part
        first = next(iter(total.sketches.values()))
        settings |= {"t_range": first.t_range, "unit": first.unit}  # the first piece shows the scale
    assert total is not None  # reading rejects empty input
    return total


def _note_pixels(calibrator: Calibrator, files: ScoreFiles) -> None:
    """Add to the report of a fit that a sketch does not know the images."""
    if (
        isinstance(calibrator, StreamingCalibrator)
        and files.readers[0].axis is not None
        and files.spec.max_pixels != 1
        and calibrator.temperature_interval_ is not None
    ):
        calibrator.note_independent_pixels()


def _by_rows(spec: InputSpec, paths: list[PathOrURL], sharding: dict[str, Any]) -> bool:
    """Whether several files are read into memory, as rows know their clusters, and sketches do not."""
    return spec.clusters_key is not None and not sharding and open_scores(paths, spec).n_bytes <= IN_MEMORY_BYTES


def _note_clusters(calibrator: Calibrator, spec: InputSpec) -> None:
    """Add to the report of a fit that a sketch does not know the clusters."""
    if spec.clusters_key is not None and isinstance(calibrator, StreamingCalibrator):
        calibrator.note_independent_samples()


def sketch_source(
    source: Any,
    spec: InputSpec | None = None,
    *,
    t_range: tuple[float, float] | None = None,
    parts: Iterable[Part] = ALL_PARTS,
    progress: Progress | None = None,
    **sharding: Any,
) -> Sketch | GroupSketches:
    """Sketch files or shards, or add sketches that were made before; see `fit_source`.

    With ``spec.groups_key`` there is a sketch of each group.
    """
    spec = spec or InputSpec()
    source = list(source) if isinstance(source, Iterator) else source
    files = source if isinstance(source, ScoreFiles) else None
    paths, parts = None if files is not None else _paths(source), tuple(parts)
    if paths is not None and _are_sketches(paths):
        _reject_options(str(paths[0]), spec, sharding)
        total = merge_sketches(paths)
        covers = (total.total if isinstance(total, GroupSketches) else total).t_range
        if t_range not in (None, covers):
            raise InputError(
                f"t_range={t_range!r}: {paths[0]} covers {covers}, which is fixed when a sketch is made of logits",
                param="t_range",
            )
        return total.only(parts)
    if spec.groups_key is not None and (files is not None or paths is not None):
        files = _group_files(files, paths or [], spec, sharding)
        return _sketch_groups(files, progress, t_range=t_range, parts=parts)
    if files is not None or (paths is not None and len(paths) == 1 and not sharding):
        return _sketch(files or open_scores(paths or (), spec), progress, t_range=t_range, parts=parts)
    return sketch_sharded(
        source if paths is None else paths,
        spec,
        t_range=t_range,
        parts=parts,
        progress=progress,
        **sharding,
    )


def spec_for(calibrator: Calibrator, spec: InputSpec, name: str = "") -> InputSpec:
    """Read files as a calibrator expects them: its input kind, zeros and classes; options may only repeat them.

    ``name`` is the file that the calibrator is from.
    """

    def known(preposition: str) -> str:
        return f"{name} was fitted {preposition}" if name else f"{type(calibrator).__name__} expects"

    if calibrator.input == "logits" and (spec.probs or spec.zeros_as is not None):
        given = "input='probs'" if spec.probs else f"zeros_as={spec.zeros_as!r}"
        raise InputError(
            f"""{given}: {known("on")} logits; pass logits, such as the logarithms of the """
            "probabilities, and leave the option out"
        )
    zeros_as = spec.zeros_as if calibrator.zeros_as is None else calibrator.zeros_as
    if spec.zeros_as not in (None, zeros_as):
        raise InputError(
            f"zeros_as={spec.zeros_as!r}: {known('with')} {zeros_as:g}; leave the option out", param="zeros_as"
        )
    known_names = calibrator.class_names if name else calibrator.classes
    names = spec.class_names if known_names is None else tuple(map(str, known_names))
    if spec.class_names not in (None, names):
        raise InputError(
            f"classes {listed(spec.class_names or ())}: "
            f"{known('for')} {listed(names or ())}, in this order; leave the option out",
            param="classes",
        )
    classes = spec.classes if known_names is None else tuple(known_names)
    axis = calibrator.axis if spec.axis is None else spec.axis
    ignored = spec.ignore_index
    if ignored is None and calibrator.ignore_index is not None and (spec.reads_labels or spec.labels is not None):
        ignored = calibrator.ignore_index
    return spec.updated(
        input=calibrator.input,
        zeros_as=zeros_as,
        classes=classes,
        axis=axis,
        ignore_index=ignored,
    )


def open_for(
    calibrator: Calibrator, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], spec: InputSpec, name: str
) -> ScoreFiles:
    """Open files for a fitted calibrator, from the file ``name``, as it knows them."""
    why = f" ({name} was fitted on probabilities.)" if calibrator.input == "probs" else ""
    spec = spec_for(calibrator, spec, name)
    try:
        files = replace(_open_columns_of_fit(calibrator, paths, spec), why=why)
    except AttemperError as error:
        raise type(error)(f"{error}{why}") from None
    try:
        same_classes(calibrator.n_features_in_, files.n_classes, of=name, where=str(files.readers[0].path))
    except InputError as error:
        keys = "labels_key or logits_key"
        raise InputError(
            f"{error}. If a table holds other columns, use {keys}; for answer options use columns.", param="columns"
        ) from None
    return files


def _open_columns_of_fit(
    calibrator: Calibrator, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], spec: InputSpec
) -> ScoreFiles:
    """Open files; of a table that has the columns of the fit, take these, wherever they stand."""
    names = tuple(getattr(calibrator, "feature_names_in_", ()))
    if not names or spec.columns is not None or spec.logits_key is not None:
        return open_scores(paths, spec)
    files = None
    with suppress(AttemperError):  # it has other columns, or none, and may be right all the same
        files = open_scores(paths, spec.updated(columns=names))
    if files is None:
        files = open_scores(paths, spec)
        _check_renamed(files, names)
        return files
    reader = files.readers[0]
    order = [header for header in reader.headers or () if header in names]
    numbers = reader.first_label is not None and is_number(str(reader.first_label))
    if order and order != list(names) and numbers and str(reader.first_label) not in (spec.class_names or ()):
        raise InputError(
            f"{reader.path}: its columns are {listed(order)}, those of the fit {listed(names)}. Its labels are column "
            "numbers, in either order. Use names as labels, or write the columns in the order of the fit."
        )
    return files


def _check_renamed(files: ScoreFiles, names: Sequence[str]) -> None:
    """Refuse a table with some columns of the fit among others, or with all of them in another order."""
    if files.columns is None or list(files.columns) == list(names):
        return
    check_order(files.readers[0].path, files.columns, names)
    if set(names) & set(files.columns):
        raise InputError(
            f"{files.readers[0].path}: expected the columns {listed(names)}, those of the fit, got "
            f"{listed(files.columns)}. Use columns for those of the same classes, in order.",
            param="columns",
        )


def _updated(spec: InputSpec | None, options: dict[str, Any]) -> InputSpec:
    if not isinstance(spec, InputSpec | None):
        raise InputTypeError(f"spec: expected an InputSpec, got {type(spec).__name__}; or pass its fields as keywords")
    return (spec or InputSpec()).updated(**options)


def _is_arrays(source: Any) -> bool:
    """Distinguish (logits, labels[, weights]) from a tuple of paths, Scores or shards."""
    return (
        isinstance(source, tuple)
        and len(source) in (2, 3)
        and not any(isinstance(part, str | os.PathLike | Scores | Sketch | tuple) for part in source)
    )


def _paths(source: Any) -> list[PathOrURL] | None:
    """Return the files; None for shards in memory."""
    if not isinstance(source, str | os.PathLike | Iterable):
        raise InputTypeError(f"source: expected arrays, Scores, a Sketch or files, got {type(source).__name__}")
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    if given and not all(isinstance(path, str | os.PathLike) for path in given):
        return None
    return expand_paths(given)


def _are_sketches(paths: list[PathOrURL]) -> bool:
    """Distinguish sketches that were made before from files of logits."""
    sketches = [path for path in paths if path.suffix.lower() == ".json"]
    if sketches and len(sketches) < len(paths):
        raise InputError(
            f"{sketches[0]}: a sketch cannot be mixed with files of logits; make sketches of them with "
            f"Sketch.of and pass sketches alone"
        )
    return bool(sketches)


def _reject_options(what: str, spec: InputSpec, sharding: dict[str, Any]) -> None:
    """Refuse options of reading files, and of workers, where there are no files of logits."""
    if sharding:
        raise InputError(f"{what}: {_name_of(sharding)} is for files of logits")
    for name in spec.non_defaults():
        if name not in ("input", "zeros_as", "classes", "need_labels"):
            raise InputError(
                f"{what}: {name} is for files of logits; a sketch holds none any more, so pass it where the sketch is "
                "made (sketch_sharded)",
                param=name,
            )


def _name_of(options: dict[str, Any]) -> str:
    return next(iter(options))


def _sketch(files: ScoreFiles, progress: Progress | None, **settings: Any) -> Sketch:
    made = sketch_pieces(files.watched(progress), **settings)
    assert made is not None  # reading rejects empty input
    return made
