"""Recipes that learn from a stream: batch after batch, in memory for one of them.

The running sketch is all that is kept of the batches seen, so the answer is that of a fit on everything.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from attemper.blas import one_blas_thread
from attemper.calibrators.base import TemperatureCalibrator
from attemper.errors import AttemperWarning, InputError
from attemper.forgetting import check_half_life, fade
from attemper.sketch import ALL_PARTS, DEFAULT_T_RANGE, Sketch

__all__ = ["StreamingCalibrator"]


def _a_sketch_is_enough(calibrator: StreamingCalibrator) -> bool:
    if calibrator.sketch_parts() is None:
        raise AttributeError(
            f"{calibrator} cannot be fitted batch by batch: it needs all logits at once, where a sketch is not enough"
        )
    return True


class StreamingCalibrator(TemperatureCalibrator):
    """Base of the recipes that a sketch is enough for: they have `partial_fit`."""

    half_life: float | None
    warned_: bool
    stream_input_: tuple[str, float | None]

    @available_if(_a_sketch_is_enough)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take in one more batch, and solve for all batches so far.

        The answer is that of `fit_sketch` on the sum of the batches' sketches, which is that of `fit` on all their
        rows to the error that ``fit_report_`` tells. After `fit_sketch` the stream goes on from that sketch. `fit` and
        `attemper.load` leave no sketch to go on from: after them a new stream begins, with a warning.

        A batch that is refused leaves everything as it was. An edge, such as a first batch without an error, is told in
        ``fit_report_`` every time, and as a warning only once in a stream.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`
        classes : array, optional
            All labels that there can be, as scikit-learn passes them. It is only checked: columns are classes, and
            their names belong to the constructor.
        """
        before = dict(self.__dict__)
        try:
            begins = not hasattr(self, "sketch_")
            total = self._grown(X, y, classes, sample_weight)
            if begins:
                self._warn_of_order()
            self._check_parts(total)
            with one_blas_thread():
                self._solve_sketch(total)
            self.sketch_ = total
            self.stream_input_ = (self.input, self.floor)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def fit_passes(self, sketch_with: Callable[..., Sketch]) -> Self:
        """Fit on data that are too large for memory, or lie in many places.

        Parameters
        ----------
        sketch_with : function
            Called with the settings of `Sketch.of` that this recipe needs; goes through all data and returns their
            sketch. One call is enough, except for `TemperatureScaling` where the best T lies outside the usual range.

        Examples
        --------
        >>> from attemper import Sketch, TemperatureScaling
        >>> logits, labels = [[2000.0, 0.0], [0.0, 2000.0], [2000.0, 0.0]], [0, 1, 1]
        >>> ts = TemperatureScaling().fit_passes(lambda **settings: Sketch.of(logits, labels, **settings))
        >>> round(ts.temperature_), round(TemperatureScaling().fit(logits, labels).temperature_)
        (2885, 2885)
        """
        return self.fit_sketch(sketch_with(**self._sketch_settings()))

    def _grown(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Sketch:
        """Check a batch, begin anew with it, and return the sketch of all batches."""
        seen: Sketch | None = getattr(self, "sketch_", None)
        names = getattr(self, "feature_names_in_", None)
        told = getattr(self, "warned_", False)
        if seen is None and hasattr(self, "map_"):
            warnings.warn(
                f"{type(self).__name__}: what was fitted or loaded before is not part of this stream, since no sketch "
                "of it was kept. To go on from those data, fit_sketch(Sketch.of(logits, labels)) first.",
                AttemperWarning,
                stacklevel=3,
            )
        elif seen is not None:
            began = getattr(self, "stream_input_", (self.input, self.floor))
            if began != (self.input, self.floor):
                raise InputError(
                    f"input={self.input!r}, floor={self.floor}: this stream began with input={began[0]!r}, "
                    f"floor={began[1]}; begin another with a fresh calibrator"
                )
            self._column_names(X, reset=False)
            shape: tuple[int, ...] = getattr(X, "shape", ())
            if len(shape) == 2 and shape[1] != seen.n_classes:
                self._reject_columns(shape[1])
        scores = self._scores(X, y, sample_weight)
        if seen is not None and scores.n_classes != seen.n_classes:
            self._reject_columns(scores.n_classes)
        self._begin(scores.n_classes, X if seen is None else None)
        if seen is not None and names is not None:
            self.feature_names_in_ = names
        self._check_told(classes)
        self.warned_ = told
        if self.half_life is not None:
            faded = fade(np.ones(len(scores)) if scores.weights is None else scores.weights, self.half_life)
            scores = scores.weighted(faded.weights)
            seen = None if seen is None else seen.scaled(faded.before)
        batch = Sketch.of(scores, **(self._sketch_settings() if seen is None else _settings_of(seen)))
        return batch if seen is None else seen + batch

    def _sketch_settings(self) -> dict[str, Any]:
        """Return what `Sketch.of` is told for the first batch."""
        t_range = getattr(self, "t_range", None) or DEFAULT_T_RANGE
        return {"t_range": t_range, "parts": self.sketch_parts()}

    def _check_parameters(self) -> None:
        check_half_life(self.half_life)

    def _check_told(self, classes: Any) -> None:
        if classes is None:
            return
        known = set(self.classes_.tolist())
        odd = [name for name in np.asarray(classes).ravel().tolist() if name not in known]
        if odd:
            raise InputError(
                f"classes: {odd[0]!r} is not among the {len(known)} classes of this stream, one for each column. Names "
                f"of the columns are told when the calibrator is made: {type(self).__name__}(classes=[…])."
            )

    def _warn(self, message: str, category: type[AttemperWarning], stacklevel: int) -> None:
        """Warn, but only once in a stream."""
        if not getattr(self, "warned_", False):
            self.warned_ = True
            warnings.warn(f"{type(self).__name__}: {message}", category, stacklevel=stacklevel + 1)


def _settings_of(sketch: Sketch) -> dict[str, Any]:
    """Return what `Sketch.of` must be told to make one that adds to this."""
    return {
        "t_range": sketch.t_range,
        "n_nodes": len(sketch.nll),
        "thetas": sketch.thetas,
        "parts": [part for part in ALL_PARTS if getattr(sketch, part) is not None],
    }
