"""A fit of many samples, which looks at the temperatures that matter alone, is that of a sketch of all temperatures."""

from __future__ import annotations

import numpy as np
import pytest

from attemper import BayesianTemperatureScaling, Sketch

from data import draw


@pytest.mark.parametrize("labels", ["clean", "noisy"])
@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_many_samples_give_the_posterior_of_a_sketch_of_all_temperatures(labels, wrong):
    h, y = draw(9000, 5, 4.0)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(9000) < wrong, rng.integers(0, 5, 9000), y)
    recipe = {"labels": labels, "noise": "uniform" if labels == "noisy" else "auto"}
    quick = BayesianTemperatureScaling(**recipe).fit(h, y)
    whole = BayesianTemperatureScaling(**recipe).fit_sketch(Sketch.of(h, y))
    room = quick.fit_report_.log_t_error + whole.fit_report_.log_t_error + 1e-6
    assert abs(np.log(quick.temperature_ / whole.temperature_)) < room
    np.testing.assert_allclose(quick.temperature_interval_, whole.temperature_interval_, rtol=room + 1e-3)
    np.testing.assert_allclose(quick.noise_interval_, whole.noise_interval_, atol=1e-4)
    assert quick.fit_report_.nll == pytest.approx(whole.fit_report_.nll, rel=2e-3)  # of the map; of its median T
    assert quick.fit_report_.edge is None
