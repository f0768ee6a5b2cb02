"""Recipes that learn from a stream: batch after batch, in memory for one of them.

The running sketch is all that is kept of the batches seen, so the answer is that of a fit on everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.metaestimators import available_if

from attemper.calibrators.estimator import recipe
from attemper.calibrators.group_fits import GroupFit, GroupMaps, centred_table, maps_by_scale
from attemper.calibrators.one_temperature import TemperatureCalibrator
from attemper.errors import AttemperWarning, InputError, warn
from attemper.group_sketches import GroupSketches
from attemper.kernels.blas import one_blas_thread
from attemper.kernels.chebyshev import Interval
from attemper.kernels.group_scales import pool
from attemper.sketch import Part, Sketch

__all__ = ["StreamingCalibrator"]


def _a_sketch_is_enough(calibrator: StreamingCalibrator) -> bool:
    if calibrator.sketch_parts() is None:
        raise AttributeError(
            f"{calibrator} cannot be fitted batch by batch: it needs all logits at once, where a sketch is not enough"
        )
    return True


@recipe
class StreamingCalibrator(TemperatureCalibrator):
    """Base of the recipes that a sketch is enough for: they have `partial_fit`."""

    sketch_tables: ClassVar[tuple[Part, ...] | None] = ()

    @available_if(_a_sketch_is_enough)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Take in one more batch, and solve for all batches so far.

        The answer is that of `fit_sketch` on the sum of the batches' sketches, which is that of `fit` on all their
        rows to the error that ``fit_report_`` has. After `fit_sketch` the stream goes on from that sketch. `fit` and
        `attemper.load` leave no sketch to go on from: after them a new stream begins, with a warning.

        A batch that is refused leaves everything as it was.

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
            total = self._updated_sketch(X, y, classes, sample_weight)
            if begins:
                self._warn_of_order()
            self._check_parts(total)
            with one_blas_thread():
                self._solve_sketch(total)
            self.sketch_ = total
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
        return self.fit_sketch(self._first_pass(sketch_with))

    def _from_group_sketches(self, sketches: GroupSketches) -> tuple[GroupMaps, GroupFit]:
        """Temperatures of groups around the common one, from the sums of their sketches."""
        total, errors, centre = sketches.total, self._label_errors(), float(np.log(self.temperature_))
        own = [sketch.over(total) for sketch in sketches.sketches.values()]
        table = np.stack([sketch.log_likelihood(errors.channel.rate, errors.similar) for sketch in own], axis=1)
        # In log τ = centre − log T: Chebyshev nodes in the other order.
        table, interval = table[::-1], Interval(centre - total.interval.high, centre - total.interval.low)
        if not self.minimises_nll:
            table, interval = centred_table(table, interval)
        found = pool(table, interval, rounding=max(sketch.rounding for sketch in own))
        counts = np.array([sketch.n_samples for sketch in own])
        return maps_by_scale(self.map_, list(sketches.sketches), counts, found, getattr(self, "credible_level", 0.95))

    def _updated_sketch(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Sketch:
        """Check a batch, begin anew with it, and return the sketch of all batches."""
        seen: Sketch | None = getattr(self, "sketch_", None)
        names = getattr(self, "feature_names_in_", None)
        if seen is None and hasattr(self, "map_"):
            warn(
                f"{type(self).__name__}: what was fitted or loaded before is not part of this stream, since no sketch "
                "of it was kept. To go on from those data, fit_sketch(Sketch.of(logits, labels)) first."
            )
        elif seen is not None:
            self._column_names(X, reset=False)
            shape: tuple[int, ...] = getattr(X, "shape", ())
            if len(shape) == 2 and shape[1] != seen.n_classes and (shape[1], seen.n_classes) != (1, 2):
                self._reject_columns(shape[1])
        scores = self._scores(X, y, sample_weight, None if seen is None else self.class_names)
        if scores.groups is not None:
            raise InputError(
                "groups: a stream has one map for all batches. Add GroupSketches.of(batch) of the batches and pass the "
                "sum to fit_sketch, or leave the groups out."
            )
        if seen is not None and scores.n_classes != seen.n_classes:
            self._reject_columns(scores.n_classes)
        self._reset_fitted_state(scores.n_classes, X if seen is None else None, scores.classes)
        if seen is not None and names is not None:
            self.feature_names_in_ = names
        self._check_known_classes(classes)
        batch = Sketch.of(scores, **(self._sketch_settings() if seen is None else _settings_of(seen)))
        return batch if seen is None else seen + batch

    def _first_pass(self, sketch_with: Callable[..., Sketch]) -> Sketch:
        """Return the sketch of all data; where parts are on different scales all are sketched over one range."""
        settings = self._sketch_settings()
        sketch = sketch_with(**settings)
        if not sketch.by_range:
            return sketch
        return sketch_with(**settings | {"t_range": sketch.t_range, "n_nodes": len(sketch.nll), "unit": sketch.unit})

    def _sketch_settings(self) -> dict[str, Any]:
        """Return the settings of `Sketch.of` for the first batch."""
        return {"t_range": getattr(self, "t_range", None), "parts": self.sketch_parts()}

    def _check_known_classes(self, classes: Any) -> None:
        if classes is None:
            return
        known = set(self.classes_.tolist())
        odd = [name for name in np.asarray(classes).ravel().tolist() if name not in known]
        if odd:
            raise InputError(
                f"classes: {odd[0]!r} is not among the {len(known)} classes of this stream, one for each column. For "
                f"names of the columns use {type(self).__name__}(classes=[…])."
            )

    def _warn(self, message: str, category: type[AttemperWarning]) -> None:
        warn(f"{type(self).__name__}: {message}", category)


def _settings_of(sketch: Sketch) -> dict[str, Any]:
    """Return the settings of `Sketch.of` for one that adds to this."""
    sketch = max(sketch.by_range, key=lambda part: part.weight, default=sketch)
    return {
        "t_range": sketch.t_range,
        "unit": sketch.unit,
        "n_nodes": len(sketch.nll),
        "thetas": sketch.thetas,
        "parts": list(sketch.tables),
    }
