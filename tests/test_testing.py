"""`check_calibrator` for a method of one's own: what is right passes, and what is wrong is found."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import attemper
from attemper import TemperatureScaling, maps
from attemper.errors import InputError
from attemper.testing import check_calibrator
from conftest import draw

# --- a researcher's own method, with a stage of its own, as one file would have it


@dataclass(frozen=True, eq=False)
class EntropyStage(maps.Stage):
    """Logits times exp(a + b · entropy of their softmax)."""

    type: ClassVar[str] = "entropy"
    a: float
    b: float
    keeps_arg_max = True

    def arrays(self):
        return {"a": np.asarray(self.a), "b": np.asarray(self.b)}

    def __call__(self, z, arrays, xp):
        log_p = maps.normalised(z, xp)
        possible = xp.where(log_p > -xp.inf, log_p, xp.zeros_like(log_p))
        entropy = -xp.sum(xp.exp(log_p) * possible, axis=-1, keepdims=True)
        return z * xp.exp(arrays["a"] + arrays["b"] * entropy)


class EntropyScaling(attemper.Calibrator):
    """T depends on the entropy."""

    method = "entropy"

    def _fit(self, scores):
        h, y, w = scores.logits, scores.labels, scores.weights

        def loss(v):
            log_p = maps.Map((EntropyStage(*v),)).log_apply(h)
            return -np.average(log_p[np.arange(len(y)), y], weights=w) + 1e-4 * (v @ v)

        with np.errstate(all="ignore"):
            a, b = minimize(loss, [0.0, 0.0], method="Nelder-Mead", bounds=[(-9, 9)] * 2, tol=1e-10).x
        fitted = maps.Map((EntropyStage(float(a), float(b)),))
        report = attemper.Report.of(fitted, scores)
        return attemper.Fit(map=fitted, report=report, values={"slope": float(b)})


@pytest.mark.slow
def test_a_method_of_ones_own_passes():
    check_calibrator(EntropyScaling())


def test_a_method_of_ones_own_works(tmp_path):
    data = draw(600)
    cal = attemper.fit(data.h, data.y, method="entropy")
    assert isinstance(cal, EntropyScaling)
    cal.save(tmp_path / "a.json")
    back = attemper.load(tmp_path / "a.json")
    np.testing.assert_array_equal(back.predict_proba(data.h), cal.predict_proba(data.h))
    assert back.slope_ == cal.slope_
    best = attemper.compare((data.h, data.y), methods=["ts", EntropyScaling()], cv=3)
    assert best.calibrator.method in ("ts", "entropy")
    found = -log_softmax(data.h / TemperatureScaling().fit(data.h, data.y).temperature_, axis=1)
    assert cal.report_.nll <= found[np.arange(600), data.y].mean() + 1e-3


# --- what is wrong


def broken(**members):
    """TemperatureScaling with other members, in its place."""
    kind = type("Broken", (TemperatureScaling,), members)
    kind.__init__ = TemperatureScaling.__init__
    return kind()


def of_first_rows(self, scores):
    return TemperatureScaling._fit(self, scores.take(slice(0, 100)))


def without_weights(self, scores):
    return TemperatureScaling._fit(self, scores.with_weights(np.ones(len(scores))))


def by_chance(self, scores):
    fit = TemperatureScaling._fit(self, scores)
    return attemper.Fit(maps.Map.scale(np.random.default_rng().random()), fit.report, fit.values)


def mean_of_rows(self, X, **options):
    p = TemperatureScaling.predict_proba(self, X, **options)
    return 0.9 * p + 0.1 * p.mean(axis=0)


@pytest.mark.parametrize("members", [
    {"_fit": of_first_rows},
    {"_fit": without_weights},
    {"_fit": by_chance},
    {"predict_proba": mean_of_rows},
])  # fmt: skip
def test_what_is_wrong_is_found(members):
    with pytest.raises(AssertionError):
        check_calibrator(broken(**members))


def test_no_calibrator():
    with pytest.raises(InputError) as error:
        check_calibrator(3)
    assert error.value.param == "calibrator"
