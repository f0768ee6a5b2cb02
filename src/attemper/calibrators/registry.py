"""Calibrators by name: the method that a name means, and what a saved file holds."""

from __future__ import annotations

import inspect
import os
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from attemper import _json
from attemper._typing import Floats
from attemper.calibrators.base import METHODS, WRAPPERS, Calibrator, Report
from attemper.data.reading import ReadOptions
from attemper.data.scores import Scores
from attemper.errors import FileError, InputError, nearest
from attemper.maps import Map
from attemper.sketches import Sketch

Pair = tuple[float, float]
VALUE_TYPES: dict[str, Any] = {  # of numbers that many fits have; undeclared lists of numbers become arrays
    "priors": Floats, "temperature_interval": Pair | None, "noise_interval": Pair, "common": Pair,
    "rows": tuple[int, ...], "fitted_on": tuple[str, ...],
}  # fmt: skip


def method_of(method: str | Calibrator | type[Calibrator], noise: Any = 0, param: str = "method") -> Calibrator:
    """Return an unfitted calibrator of a name, a class or an instance; with a share of wrong labels, or "unknown"."""
    kind = METHODS.get(method) if isinstance(method, str) else method
    made: Any = kind() if isinstance(kind, type) and issubclass(kind, Calibrator) else kind
    if not isinstance(made, Calibrator):
        hint = nearest(str(method), METHODS)
        raise InputError(f"{param}: expected one of {', '.join(METHODS)}, got {method!r:.80}.{hint}", param)
    made = clone(made)
    if hasattr(made, "base"):  # of groups
        return cast(Calibrator, made.set_params(base=method_of(made.base, noise)))
    if noise != 0 and not made.knows_noise:
        raise InputError(f"noise: {made.method} has no model of wrong labels; use bayes or structured", "noise")
    return cast(Calibrator, made.set_params(noise=noise) if noise != 0 else made)


def reads_like(calibrator: Any, scores: Scores, zeros_as: float | None = None) -> None:
    """Let an unfitted calibrator, of groups its base, read arrays later as these scores were read."""
    calibrator = getattr(calibrator, "base", calibrator)
    classes = None if scores.classes is None else list(scores.classes)
    given, known = {"input": scores.input, "classes": classes, "zeros_as": zeros_as}, calibrator.get_params(deep=False)
    calibrator.set_params(**{name: v for name, v in given.items() if v is not None and name in known})


def load(path: str | os.PathLike[str]) -> Any:
    """Read a calibrator or a sketch that `save` wrote; the module that defines the method must be imported."""
    kinds: dict[str, Any] = {"calibrator": dict[str, Any], "sketch": Sketch}
    content = _json.load(path, kinds)
    return content if isinstance(content, Sketch) else from_dict(content, str(path))


def from_dict(content: dict[str, Any], where: str) -> Any:
    """Make a fitted calibrator of any method from what its `to_dict` returned."""
    known, method = METHODS | WRAPPERS, content.get("method") if isinstance(content, dict) else None
    if not isinstance(method, str) or method not in known:
        raise FileError(f"{where}: the method {method!r:.60} is not known; import its module first")
    try:
        return _restored(known[method], content, where)
    except FileError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{where}: cannot be understood ({error!r:.120})") from None


def _restored(kind: type[Calibrator], content: dict[str, Any], where: str) -> Any:
    known = inspect.signature(kind).parameters
    made: Any = kind(**{name: _tuples(value) for name, value in content["params"].items() if name in known})
    made.map_ = Map.from_dict(content["map"], f"{where}: map")
    made.report_ = _json.typed(content["report"], Report, f"{where}: report")
    made.classes_ = np.array(content["classes"])
    made.n_features_in_ = len(made.classes_)
    made.read_ = _json.typed(content["read"], ReadOptions, f"{where}: read")
    for name, value in content["values"].items():
        of, place = (VALUE_TYPES | kind.value_types).get(name), f"{where}: {name}"
        if of is Calibrator:
            found = from_dict(value, place)
        else:
            found = _numbers(value) if of is None else _json.typed(value, of, place)
        setattr(made, f"{name}_", found)
    if "groups" in kind.needs:
        made.base = clone(made.common_)
    if content.get("rule") is not None:
        from attemper.decisions.rules import rule_from_dict

        made.rule_ = rule_from_dict(content["rule"], f"{where}: rule")
    return made


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _numbers(value: Any) -> Any:
    """Return lists of numbers as arrays, others as tuples; infinity and NaN are texts in JSON."""
    if isinstance(value, list):
        items = tuple(map(_numbers, value))
        alike = all(isinstance(item, int | float | np.ndarray) for item in items) and len({*map(np.shape, items)}) == 1
        return np.array(items) if alike else items
    return float(value) if value in ("inf", "-inf", "nan") else value
