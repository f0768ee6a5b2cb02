"""`check_calibrator` and the examples: what is right passes, and what is wrong is found."""

import numpy as np
import pytest
import torch

import attemper
from attemper import TemperatureScaling, maps, testing
from attemper.errors import InputError
from attemper.testing import check_calibrator
from conftest import draw
from examples.own_method import PowerScaling


@pytest.mark.slow
def test_a_method_of_ones_own_passes():
    check_calibrator(PowerScaling())


def test_a_method_of_ones_own_works(tmp_path):
    data = draw(600)
    cal = attemper.fit(data.h, data.y, method="power")
    assert isinstance(cal, PowerScaling)
    cal.save(tmp_path / "a.json")
    back, p = attemper.load(tmp_path / "a.json"), cal.predict_proba(data.h)
    np.testing.assert_array_equal(back.predict_proba(data.h), p)
    np.testing.assert_allclose(back.predict_proba(torch.tensor(data.h)).numpy(), p, atol=1e-12)
    ts, one = (attemper.fit(data.h, data.y, method=method) for method in ("ts", PowerScaling(power=1.0)))
    np.testing.assert_allclose(one.predict_proba(data.h), ts.predict_proba(data.h), atol=1e-9)
    best = attemper.compare((data.h, data.y), methods=["ts", PowerScaling(power=1.2)], cv=3)
    assert [row.method for row in best.rows] == ["none", "ts", "power(power=1.2)"]


def test_the_service_serves_what_apply_returns(tmp_path):
    fastapi = pytest.importorskip("fastapi")
    from examples.fastapi_service import Request, create_app

    data = draw(600, 3)
    cal = attemper.decide((data.h, data.y), budget=0.2, method="ts").calibrator
    cal.save(tmp_path / "net.attemper.json")
    calls = {route.path: route.endpoint for route in create_app(str(tmp_path / "net.attemper.json")).routes}
    expected = attemper.apply(cal, data.h[:3])
    assert calls["/predict"](Request(logits=data.h[:3].tolist())) == [
        {name: column[i] for name, column in expected.items()} for i in range(3)
    ]
    assert calls["/health"]()["method"] == "ts"
    with pytest.raises(fastapi.HTTPException) as error:
        calls["/predict"](Request(logits=[[1.0, 2.0]]))
    assert error.value.status_code == 422


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


def without_an_error(self, x):
    return TemperatureScaling._checked(self, np.where(np.isnan(x), 0.0, x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("check", "members"), [
    (testing.check_order, {"_fit": of_first_rows}),
    (testing.check_weights, {"_fit": without_weights}),
    (testing.check_probabilities, {"_fit": by_chance}),
    (testing.check_order, {"predict_proba": mean_of_rows}),
    (testing.check_errors, {"_checked": without_an_error}),
])  # fmt: skip
def test_what_is_wrong_is_found(check, members):
    check(broken())  # which is not registered, so that others fail
    with pytest.raises(AssertionError):
        check(broken(**members))
    with pytest.raises(AssertionError):
        check_calibrator(broken(**members))


def test_no_calibrator():
    with pytest.raises(InputError) as error:
        check_calibrator(3)
    assert error.value.param == "calibrator"
