"""What predictions without labels indicate, as long as the map is calibrated."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from attemper import FileError, InputError, Scores, TemperatureScaling
from attemper.drift import ExchangeabilityTest, UnlabelledMonitor, load_test
from attemper.drift.row_sample import RowSample

from data import draw
from oracles import softmax


def with_prior(monitor, prior):
    monitor.class_prior, monitor.n_fitted = np.asarray(prior, dtype=float), 4000.0
    return monitor


def test_accuracy_is_the_mean_confidence():
    """Against a loop over rows: mean, interval of chance and of T, and the rows above the threshold."""
    h, y = draw(400, 4)
    ts = TemperatureScaling().fit(h, y)
    found = UnlabelledMonitor(ts, threshold=0.7).update(h[:300]).estimates(confidence_level=0.9)
    t, known, z = ts.temperature_, ts.known_within(), norm.ppf(0.95)
    for rows, got in (
        (range(300), found.accuracy),
        ([i for i in range(300) if max(softmax(h[i], t)) > 0.7], tuple(1 - e for e in found.miss_rate)),
    ):
        c = np.array([max(softmax(h[i], t)) for i in rows])
        soft, sharp = (np.mean([max(softmax(h[i], s)) for i in rows]) for s in (t * known, t / known))
        chance = np.sqrt(sum(c * (1 - c))) / len(c)
        low = c.mean() - np.sqrt((z * chance) ** 2 + (z / norm.ppf(0.975) * (c.mean() - soft)) ** 2)
        high = c.mean() + np.sqrt((z * chance) ** 2 + (z / norm.ppf(0.975) * (sharp - c.mean())) ** 2)
        assert sorted(got) == pytest.approx(sorted([low, c.mean(), high]), rel=1e-6)
        assert found.decided in (None, pytest.approx(len(c) / 300)) or len(c) == 300


def test_intervals_cover_what_labels_would_show():
    rng = np.random.default_rng(0)
    inside = dict.fromkeys(("rows", "cases"), 0)
    for _ in range(200):
        h = 3 * rng.normal(size=(200, 3))
        right = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1) == h.argmax(axis=1)
        low, high = UnlabelledMonitor(2.0).update(h).estimates().accuracy[1:]
        inside["rows"] += low <= right.mean() <= high
        ids = np.repeat(np.arange(50), 4)  # each case four times: right or wrong together
        low, high = UnlabelledMonitor(2.0).update(h[:50][ids], clusters=ids).estimates().accuracy[1:]
        inside["cases"] += low <= right[:50].mean() <= high
    assert all(180 <= count <= 200 for count in inside.values())


@given(
    cuts=st.lists(st.integers(1, 119), max_size=3), seed=st.integers(0, 9), reverse=st.booleans(), added=st.booleans()
)
def test_batches_order_and_parts_make_no_difference(cuts, seed, reverse, added):
    h, _ = draw(120, 3, seed=seed)
    g = np.random.default_rng(seed).integers(0, 3, 120)
    whole = with_prior(UnlabelledMonitor(2.0, threshold=0.6), [0.2, 0.3, 0.5]).update(h, groups=g)
    parts = [np.arange(120)[::-1] if reverse else np.arange(120)]
    parts = np.split(parts[0], sorted(set(cuts)))
    monitors = []
    monitor = with_prior(UnlabelledMonitor(2.0, threshold=0.6), [0.2, 0.3, 0.5])
    for part in parts:
        monitor.update(h[part], groups=g[part])
        if added:
            monitors.append(monitor)
            monitor = with_prior(UnlabelledMonitor(2.0, threshold=0.6), [0.2, 0.3, 0.5])
    for one in monitors:
        monitor = monitor + one
    assert monitor.n_samples == 120
    for group in (None, 0, 1, 2):
        found, expected = monitor.estimates(group), whole.estimates(group)
        assert found.n_samples == expected.n_samples
        assert found.accuracy == pytest.approx(expected.accuracy, rel=1e-9)
        assert found.miss_rate == pytest.approx(expected.miss_rate, rel=1e-9, nan_ok=True)
    assert monitor.priors().estimate.priors == pytest.approx(whole.priors().estimate.priors)


@pytest.mark.parametrize("reference", [False, True])
def test_files_go_on(reference, tmp_path):
    h, y = draw(900, 3)
    g, ids = np.arange(900) % 2, np.arange(900) // 3
    settings = {}
    if reference:
        settings["reference"] = Scores.from_logits(h[:300], y[:300], clusters=ids[:300])
    ts = TemperatureScaling().fit(h, y)
    ts.class_prior_ = np.array([0.3, 0.3, 0.4])
    whole = UnlabelledMonitor(ts, **settings).update(h[300:], groups=g[300:], clusters=ids[300:])
    monitor = UnlabelledMonitor(ts, **settings)
    for part in np.split(np.arange(300, 900), [30, 300]):
        monitor.update(h[part], groups=g[part], clusters=ids[part])
        monitor.save(tmp_path / "m.json")
        monitor = load_test(tmp_path / "m.json")
    assert isinstance(monitor, UnlabelledMonitor)
    assert monitor.describe() == whole.describe()
    assert "600 samples of 200 clusters without labels" in " ".join(monitor.describe())
    assert sum(line.startswith("group ") for line in monitor.describe()) == 2
    assert monitor.describe()[-1].startswith("NOTE: these estimates rest on the map being calibrated")
    if reference:
        alone = ExchangeabilityTest(ts, h[:300], clusters=ids[:300]).update(h[300:], clusters=ids[300:])
        assert monitor.test.log_e_value == pytest.approx(alone.log_e_value)
        with pytest.raises(InputError):
            monitor.update(h + 1)
        with pytest.raises(InputError):
            monitor + monitor
    else:
        assert not monitor.alarm
    frame = monitor.to_pandas()
    assert frame["n_samples"].tolist() == [600, 300, 300]


def test_a_shift_of_priors_is_estimated():
    """Classes drawn with other priors: the estimate finds them, and the accuracy under them."""
    rng = np.random.default_rng(0)
    centres = 1.5 * np.eye(3)

    def sample(n, prior):
        y = rng.choice(3, n, p=prior)
        return centres[y] + rng.normal(size=(n, 3)), y

    old, new = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.6])
    x, y = sample(4000, new)
    logits = x @ centres.T + np.log(old)  # exact under the old priors
    monitor = with_prior(UnlabelledMonitor(1.0), old).update(logits)
    shift = monitor.priors()
    assert shift.estimate.priors == pytest.approx(new, abs=0.05)
    assert (shift.estimate.low - 0.02 <= new).all()
    assert (shift.estimate.high + 0.02 >= new).all()
    assert shift.changed[:2] in ([0, 2], [2, 0])
    accuracy = (logits.argmax(axis=1) == y).mean()
    assert shift.accuracy == pytest.approx(accuracy, abs=0.03)
    assert abs(monitor.estimates().accuracy.value - accuracy) > 0.05  # it takes the old priors for right
    assert "if nothing but they has changed" in " ".join(monitor.describe())
    same = with_prior(UnlabelledMonitor(1.0), new).update(x @ centres.T + np.log(new))
    assert len(same.priors().changed) <= 1
    assert UnlabelledMonitor(1.0).update(logits).priors() is None


def test_a_drop_of_confidence_raises_the_alarm():
    h, _ = draw(1500, 4)
    monitor = UnlabelledMonitor(2.0, reference=Scores.from_logits(h[:500]), alpha=0.01)
    assert not monitor.update(h[500:1000]).alarm
    assert monitor.update(h[1000:] * 0.3).alarm
    assert "confidences have been lower" in " ".join(monitor.describe())


def test_samples_of_rows_are_bounded_and_add():
    rng = np.random.default_rng(0)
    hashes, log_p = rng.permutation(9000), np.log(rng.dirichlet(np.ones(3), 9000))
    whole = RowSample.of(hashes, hashes, log_p)
    parts = sum((RowSample.of(hashes[p], hashes[p], log_p[p]) for p in np.split(np.arange(9000), 6)), RowSample.empty())
    assert whole.hashes.tolist() == parts.hashes.tolist() == list(range(2000))
    np.testing.assert_array_equal(whole.log_p, parts.log_p)


def test_errors_leave_everything_as_it_was():
    h, y = draw(100, 3)
    monitor = UnlabelledMonitor(2.0).update(h)
    before = monitor.estimates()
    for X, _why in [(h, "fed before"), (h[:, :2], "expected 3 classes"), (np.where(h > 4, np.nan, h), "NaN")]:
        with pytest.raises(InputError):
            monitor.update(X)
        assert monitor.estimates() == before
    with pytest.raises(InputError):
        monitor + UnlabelledMonitor(2.0).update(h)
    with pytest.raises(InputError):
        monitor + UnlabelledMonitor(3.0).update(h)
    with pytest.raises(InputError):
        monitor.estimates("a")
    with pytest.raises(InputError):
        UnlabelledMonitor(2.0, threshold=90)
    assert monitor.update(Scores.from_logits(h + 1, y)).n_samples == 200  # labels are not used
    assert UnlabelledMonitor(2.0).describe() == ["no samples yet"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c["sums"].update(count=[-1, 0]),
        lambda c: c["sums"].update(confidence=[[200, 1, 1], [0, 0, 0]]),
        lambda c: c["sums"].update(variance=[1.0]),
        lambda c: c["sample"].update(log_p=[[0.0]]),
        lambda c: c["sample"].update(cases=[1]),
        lambda c: c.update(n_cases=-1),
        lambda c: c.update(class_prior=[0.5]),
        lambda c: c.update(groups=[{"group": 1}]),
        lambda c: c.update(threshold=7),
        lambda c: c.pop("sums"),
    ],
)
def test_damaged_files(tmp_path, damage):
    UnlabelledMonitor(2.0).update(draw(100, 3)[0], groups=np.arange(100) % 2).save(tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    damage(content)
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(FileError):
        load_test(tmp_path / "m.json")
