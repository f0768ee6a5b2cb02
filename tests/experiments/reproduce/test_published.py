import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import TemperatureScaling
from attemper.errors import InputError
from experiments.reproduce.published import (
    attended_loss,
    lbfgs,
    mean_nll,
    published_attended_temperature,
    published_temperature,
)

from data import cases, draw

torch = pytest.importorskip("torch")


def run_torch(loss, start, clear, **options):
    """Every T that torch.optim.LBFGS evaluates, and the last."""
    at = torch.tensor([start], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([at], **({"lr": 0.01, "max_iter": 50} | options))
    seen = []

    def closure():
        if clear:
            optimizer.zero_grad()
        seen.append(at.item())
        value = loss(at).sum()
        value.backward()
        return value

    optimizer.step(closure)
    return seen, at.item()


def run_ours(value_and_slope, start, clear, **options):
    seen = []

    def watched(at):
        seen.append(at)
        return value_and_slope(at)

    run = lbfgs(watched, start, clear=clear, **options)
    assert run.evaluations == len(seen)
    return seen, run.at


def as_loss(loss):
    """Value and slope of a function of torch, as floats."""

    def evaluate(at):
        x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
        value = loss(x)
        value.backward()
        return value.item(), x.grad.item()

    return evaluate


FUNCTIONS = {
    "square": lambda x: 3 * (x - 2) ** 2,
    "quartic": lambda x: (x - 1) ** 4 + x,
    "not convex": lambda x: torch.cos(3 * x) + 0.1 * x**2,
    "steep": lambda x: torch.exp(2 * x),
    "flat": lambda x: torch.tanh(x - 3) * 1e-3,
    "falls without end": lambda x: -(x**2),
    "in 1/x": lambda x: torch.log(1 + torch.exp(-4 / x)) + 1 / x,
    "constant": lambda x: 0 * x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("options", [{}, {"lr": 1.0}, {"max_iter": 1}, {"max_iter": 2}, {"max_iter": 3}])
@pytest.mark.parametrize("start", [-0.5, 1.0, 3.0])
def test_lbfgs_is_that_of_torch_step_by_step(name, clear, options, start):
    loss = FUNCTIONS[name]
    seen, last = run_torch(loss, start, clear, **options)
    ours, our_last = run_ours(as_loss(loss), start, clear, **options)
    if options.get("lr") == 1 and not clear and name == "not convex":
        ours, seen, last = ours[:8], seen[:8], our_last  # it leaps about, and every leap magnifies rounding
    assert len(ours) == len(seen)
    assert ours == pytest.approx(seen, rel=1e-9, abs=1e-12, nan_ok=True)
    assert our_last == pytest.approx(last, rel=1e-9, abs=1e-12, nan_ok=True)


def torch_nll(h, y):
    h, y = torch.from_numpy(h), torch.from_numpy(y)
    return lambda t: torch.nn.functional.cross_entropy(h / t, y)


def torch_attended(h, y, theta):
    h, y = torch.from_numpy(h), torch.from_numpy(y)
    n = torch.arange(len(y))
    member = torch.softmax(h, 1) > theta
    member[n, h.argmax(1)] = True
    member[n, y] = False
    member[:, y.max() + 1 :] = False

    def loss(t):
        s = torch.softmax(h / t, 1)
        own, other = s[n, y], s[member]
        own_terms = torch.log((own + 1e-8) / (1 - own + 1e-8) * (1 - own + 1e-8))
        other_terms = torch.log((other + 1e-8) / (1 - other + 1e-8) * (other + 1e-8))
        return -0.001 * (own_terms.sum() + other_terms.sum())

    return loss


@pytest.mark.parametrize("start", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("n, k", [(300, 5), (200, 100), (50, 2)])
def test_published_temperatures_are_those_of_torch(start, clear, n, k):
    h, y = draw(n, k, scale=4.0, t=2.0)
    # A secant that overshoots magnifies rounding, so that runs which jump agree to fewer digits.
    seen, last = run_torch(torch_nll(h, y), start, clear)
    ours, our_last = run_ours(mean_nll(h, y), start, clear)
    assert ours == pytest.approx(seen, rel=1e-7)
    assert published_temperature(h, y, start=start, clear=clear) == our_last == pytest.approx(last, rel=1e-7)
    seen, last = run_torch(torch_attended(h, y, 1e-5), start, clear)
    ours, our_last = run_ours(attended_loss(h, y, 1e-5), start, clear)
    assert ours == pytest.approx(seen, rel=1e-7)
    assert published_attended_temperature(h, y, start=start, clear=clear) == our_last == pytest.approx(last, rel=1e-7)


def test_a_run_that_jumps_below_zero_is_that_of_torch():
    h, y = draw(200, 100, scale=6.0, t=2.0)
    seen, last = run_torch(torch_nll(h, y), 3.0, clear=False)
    assert last < min(seen) < -100
    assert published_temperature(h, y) == pytest.approx(last, rel=1e-6)


def test_a_run_that_jumps_far_away_is_that_of_torch():
    h, y = draw(300, 10, scale=4.0, t=2.0)
    _, last = run_torch(torch_nll(h, y), 1.0, clear=False)
    assert last > 1e6
    assert published_temperature(h, y, start=1.0) == pytest.approx(last, rel=1e-3)


def test_float32_and_tensors_are_taken_in_double_precision():
    h, y = draw(100, 4)
    h = h.astype(np.float32)
    for fit in (published_temperature, published_attended_temperature):
        assert fit(h, y) == fit(h.astype(np.float64), y) == fit(torch.from_numpy(h), torch.from_numpy(y))


def test_where_it_ends_depends_on_where_it_starts():
    h, y = draw(1000, 10, scale=4.0, t=2.0)
    best = TemperatureScaling().fit(h, y).temperature_
    for clear in (True, False):
        ends = [published_temperature(h, y, start=start, clear=clear) for start in (1.0, 1.5)]
        assert abs(ends[0] - ends[1]) > 0.1
        assert all(abs(end - best) > 0.05 for end in ends)
    # Cleared, and with steps that a secant deserves, the same search finds the minimum.
    assert lbfgs(mean_nll(h, y), 1.5, clear=True, lr=1.0).at == pytest.approx(best, rel=1e-4)


def softmax(row, t):
    """Also of a negative t."""
    top = max(v / t for v in row)
    e = [math.exp(v / t - top) for v in row]
    return [v / sum(e) for v in e]


def nll_oracle(h, y, t):
    return -sum(math.log(softmax(row, t)[label]) for row, label in zip(h, y)) / len(y)


def attended_oracle(h, y, t, theta):
    loss = 0.0
    for row, label in zip(h, y):
        at_one, s = softmax(row, 1.0), softmax(row, t)
        predicted = max(range(len(row)), key=lambda k: row[k])
        for k in range(max(y) + 1):
            odds = (s[k] + 1e-8) / (1 - s[k] + 1e-8)
            if k == label:
                loss -= 0.001 * math.log(odds * (1 - s[k] + 1e-8))
            elif k == predicted or at_one[k] > theta:
                loss -= 0.001 * math.log(odds * (s[k] + 1e-8))
    return loss


def slope_of(loss, t):
    step = 1e-5 * abs(t)
    return (8 * (loss(t + step) - loss(t - step)) - (loss(t + 2 * step) - loss(t - 2 * step))) / (12 * step)


temperatures = st.one_of(st.floats(0.3, 20), st.floats(-20, -0.3))


@given(case=cases(), t=temperatures, theta=st.sampled_from([0.0, 1e-5, 0.1, 0.5, 1.0]))
def test_losses_are_the_obvious_loops(case, t, theta):
    h, y = case
    for loss, oracle in (
        (mean_nll(h, y), lambda t: nll_oracle(h, y, t)),
        (attended_loss(h, y, theta), lambda t: attended_oracle(h, y, t, theta)),
    ):
        value, slope = loss(t)
        assert value == pytest.approx(oracle(t), rel=1e-6, abs=1e-9)  # 1 − S + 1e-8 keeps eight digits near S = 1
        assert slope == pytest.approx(slope_of(lambda u, loss=loss: loss(u)[0], t), rel=1e-4, abs=1e-7)


def test_theta_is_not_reached_by_being_met():
    h = np.log([[0.5, 0.25, 0.25]])
    y = np.array([2])
    value = attended_loss(h, y, 0.25)(1.0)[0]  # 1 has probability θ, not more; 0 is the prediction
    assert value == pytest.approx(-0.001 * (math.log(0.25) + math.log(0.5)), rel=1e-6)
    value = attended_loss(h, y, 0.2499)(1.0)[0]
    assert value == pytest.approx(-0.001 * (math.log(0.25) + math.log(0.5) + math.log(0.25 / 0.75 * 0.25)), rel=1e-6)


def test_classes_beyond_the_largest_label_do_not_count():
    h = np.log([[0.2, 0.3, 0.5]])
    value = attended_loss(h, np.array([1]), 0.0)(1.0)[0]
    assert value == pytest.approx(-0.001 * (math.log(0.3) + math.log(0.2 / 0.8 * 0.2)), rel=1e-6)


def test_saturated_probabilities():
    h, y = np.array([[1000.0, 0.0, -1000.0], [0.0, 800.0, 5.0]]), np.array([2, 1])
    value, slope = attended_loss(h, y, 1e-5)(1.0)
    assert value == pytest.approx(0.001 * (-math.log(1e-8) + math.log(1e-8)), abs=1e-9)
    assert slope == 0
    value, slope = mean_nll(h, y)(0.01)
    assert value == pytest.approx(100_000)
    assert slope == pytest.approx(-100_000 / 0.01)
    for loss in (mean_nll(h, y), attended_loss(h, y, 1e-5)):
        for t in (1e-300, -1e-300, 1e-3, -1e-3, 1e300, -1e300, math.inf):
            assert not math.isnan(loss(t)[0])
    assert mean_nll(h, y)(math.inf) == pytest.approx((math.log(3), 0))


def test_no_temperature_has_no_loss():
    h, y = draw(20, 3)
    for loss in (mean_nll(h, y), attended_loss(h, y, 1e-5)):
        for t in (0.0, math.nan, 1e-320):
            assert np.isnan(loss(t)).all()
        assert math.isnan(lbfgs(loss, 0.0, clear=False).at)


def test_errors():
    h, y = draw(20, 3)
    for fit in (published_temperature, published_attended_temperature):
        for start in (0, math.nan, math.inf, "3"):
            with pytest.raises(InputError):
                fit(h, y, start=start)
        with pytest.raises(InputError):
            fit([[0.0, -np.inf]], [0])
        with pytest.raises(InputError):
            fit([[0.0, np.nan]], [0])
        with pytest.raises(InputError):
            fit(h, [0, 1])
    with pytest.raises(InputError):
        published_attended_temperature(h, y, theta=1.5)
