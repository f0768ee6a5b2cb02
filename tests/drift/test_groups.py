"""A test of each group: one bound for all of them, whatever groups come later."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attemper import FileError, InputError, ScaleMap, Scores, TemperatureScaling
from attemper.drift import DriftTest, ExchangeabilityTest, GroupedTest, load_test

from data import draw


def grouped(n=600, seed=0, names=("b", "a", "c")):
    h, y = draw(n, 4, seed=seed)
    return h, y, np.random.default_rng(seed).choice(names, n).astype("U8")


def state(test):
    return {name: (t.n_samples, t.alarm_at or 0, t.alpha, t.log_e_value) for name, t in test.tests.items()}


def test_each_test_is_that_of_the_rows_of_its_group():
    """Against one test for each group by hand, with its share of alpha."""
    h, y, g = grouped()
    test = GroupedTest(2.0, alpha=0.1).update(h, y, groups=g)
    overall = DriftTest(2.0, alpha=0.05).update(h, y)
    assert test.overall.log_e_value == overall.log_e_value
    order = list(dict.fromkeys(g.tolist()))
    assert list(test.tests) == order
    for j, name in enumerate(order, start=1):
        alpha = 0.05 * 6 / math.pi**2 / j**2
        alone = DriftTest(2.0, alpha=alpha).update(h[g == name], y[g == name])
        assert test.tests[name].alpha == pytest.approx(alpha, rel=1e-12)
        assert test.tests[name].log_e_value == pytest.approx(alone.log_e_value, rel=1e-12)
        assert test.p_value_of(test.tests[name]) == pytest.approx(min(1, alone.p_value * 0.1 / alpha))
    assert test.p_value == min(test.p_value_of(t) for t in (test.overall, *test.tests.values()))
    assert not test.alarm


@pytest.mark.parametrize("known", [0, 3])
def test_the_shares_add_up_to_alpha(known):
    """However many groups come."""
    test = GroupedTest(2.0, alpha=0.2, groups=list(range(known)))
    h, y = draw(2000, 3)
    test.update(h, y, groups=np.arange(2000))
    total = test.overall.alpha + sum(t.alpha for t in test.tests.values())
    assert total < 0.2
    assert total > 0.2 * 0.99 if known == 0 else 0.15
    assert len(test.tests) == 2000


def test_known_groups_share_equally():
    h, y, g = grouped()
    test = GroupedTest(2.0, groups=["a", "b", "z"]).update(h, y, groups=g)
    assert test.tests["a"].alpha == test.tests["b"].alpha == pytest.approx(0.025 / 4)
    assert test.tests["c"].alpha == pytest.approx(0.025 / 4 * 6 / math.pi**2)


@given(cuts=st.lists(st.integers(1, 149), max_size=3), seed=st.integers(0, 20))
def test_batches_make_no_difference(cuts, seed):
    h, y, g = grouped(150, seed)
    whole = GroupedTest(2.0).update(h, y, groups=g)
    parts = GroupedTest(2.0)
    for part in np.split(np.arange(150), sorted(set(cuts))):
        parts.update(h[part], y[part], groups=g[part])
    assert list(state(parts)) == list(state(whole))
    for name, numbers in state(whole).items():
        assert state(parts)[name] == pytest.approx(numbers, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("reference", [False, True])
def test_files_go_on_and_groups_may_come_later(reference, tmp_path):
    h, y, g = grouped(800)
    old, new = slice(0, 300), slice(300, 800)
    g[600:][g[600:] == "c"] = "late"
    settings = {"reference": Scores.from_logits(h[old], y[old], groups=g[old])} if reference else {}
    whole = GroupedTest(2.0, **settings).update(h[new], y[new], groups=g[new])
    test = GroupedTest(2.0, **settings)
    for part in np.split(np.arange(300, 800), [100, 101, 400]):
        test.update(h[part], y[part], groups=g[part])
        test.save(tmp_path / "t.json")
        test = load_test(tmp_path / "t.json")
    assert isinstance(test, GroupedTest)
    for name, numbers in state(whole).items():
        assert state(test)[name] == pytest.approx(numbers, rel=1e-9, abs=1e-9)
    assert test.describe() == whole.describe()
    assert ("late" in test.tests) == (not reference)
    if reference:
        assert "of groups that the reference does not have" in test.describe()[-1]
        alone = ExchangeabilityTest(2.0, h[old][g[old] == "a"], y[old][g[old] == "a"], alpha=0.025 / 4)
        alone.update(h[new][g[new] == "a"], y[new][g[new] == "a"])
        assert test.tests["a"].log_e_value == pytest.approx(alone.log_e_value)


def test_the_group_that_drifts_is_named():
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(4000, 4))
    g = rng.integers(1, 6, 4000)
    y = (h / np.where(g == 3, 4.0, 2.0)[:, None] + rng.gumbel(size=h.shape)).argmax(axis=1)
    test = GroupedTest(2.0).update(h, y, groups=g)
    assert test.alarm
    assert test.alarms == [3]
    lines = test.describe()
    assert any(line.startswith("group 3: ALARM") for line in lines)
    assert [line.split(":")[0] for line in lines if "no alarm" in line][-4:] == [f"group {i}" for i in (1, 2, 4, 5)]
    frame = test.to_pandas()
    assert frame["alarm"].tolist()[1:] == [name == 3 for name in test.tests]


def test_false_alarms_of_many_groups_are_rare():
    """Twenty groups without drift, of which any may raise an alarm: at most 5 % of streams, 3 of 60 on average."""
    rng = np.random.default_rng(1)
    alarms = naive = 0
    for _ in range(60):
        h = 3 * rng.normal(size=(1000, 3))
        y = (h / 2 + rng.gumbel(size=h.shape)).argmax(axis=1)
        g = rng.integers(0, 20, 1000)
        test = GroupedTest(2.0, tolerance=1.0).update(h, y, groups=g)
        alarms += test.alarm
        naive += any(t.p_value <= 0.05 for t in test.tests.values())
    assert alarms <= 8
    assert naive > alarms


def test_clusters_within_groups():
    h, y, g = grouped(300)
    ids = np.arange(300) // 3
    g = np.repeat(g[:100], 3)
    test = GroupedTest(2.0).update(Scores.from_logits(h, y, groups=g, clusters=ids))
    assert test.n_samples == 100
    for name, one in test.tests.items():
        alone = DriftTest(2.0).update(h[g == name], y[g == name], clusters=ids[g == name])
        assert one.log_e_value == pytest.approx(alone.log_e_value)
    with pytest.raises(InputError):
        test.update(h[15:18] + 1, y[15:18], groups=g[15:18], clusters=ids[15:18])


def test_a_map_with_groups_predicts_each_row_by_its_own(tmp_path):
    rng = np.random.default_rng(0)
    h = 3 * rng.normal(size=(3000, 4))
    g = rng.choice(["n", "s"], 3000)
    y = (h / np.where(g == "n", 1.0, 4.0)[:, None] + rng.gumbel(size=h.shape)).argmax(axis=1)
    ts = TemperatureScaling().fit(h, y)
    ts.group_maps_ = {"n": ScaleMap(1.0), "s": ScaleMap(0.25)}
    assert GroupedTest(ts.map_).update(h, y, groups=g).alarm
    test = GroupedTest(ts).update(h, y, groups=g)
    assert not test.alarm
    assert test.tests["n"].alpha == pytest.approx(0.025 / 3)  # it knows its groups
    by_hand = DriftTest(1.0, tolerance=test.overall.tolerance).update(h[g == "n"], y[g == "n"])
    assert test.tests["n"].log_e_value == pytest.approx(by_hand.log_e_value)
    test.save(tmp_path / "t.json")
    back = load_test(tmp_path / "t.json")
    assert back.group_maps.keys() == {"n", "s"}
    for one in (test, back):
        assert one.tests["s"].drift().temperature == pytest.approx(4 * one.tests["s"].drift().factor)
        assert one.overall.drift().temperature is None
    one = DriftTest(ts).update(h, y, groups=g)
    assert not one.alarm
    other = np.where(g == "n", "unseen", g)
    log_e = [DriftTest(ts).update(h, y, groups=ids).log_e_value for ids in ("common", other, g)]
    assert len(set(log_e)) == 3
    known, unseen = (DriftTest(ts).update(h[:50], y[:50], groups=ids).log_e_value for ids in ("common", ["new"] * 50))
    assert known == unseen  # by the common map
    with pytest.raises(InputError):
        DriftTest(ts).update(h, y)


def test_errors_leave_everything_as_it_was():
    h, y, g = grouped(100)
    test = GroupedTest(2.0).update(h, y, groups=g)
    before = state(test)
    bad = g.astype(object)
    bad[4] = None
    for kwargs, _why in [
        ({}, "groups: expected one for each row"),
        ({"groups": bad}, "groups: row 4"),
        ({"groups": g[:5]}, "expected one per row"),
        ({"groups": g}, "fed before"),
    ]:
        with pytest.raises(InputError):
            test.update(h, y, **kwargs)
        assert state(test) == before
    with pytest.raises(InputError):
        GroupedTest(2.0, tolerance=1.2, reference=Scores.from_logits(h, y, groups=g))
    with pytest.raises(InputError):
        GroupedTest(2.0, reference=Scores.from_logits(h, y))


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.update(alpha=0.5),
        lambda c: c.update(test="sketch"),
        lambda c: c["tests"][0].update(alpha=0.9),
        lambda c: c["tests"].append(c["tests"][0]),
        lambda c: c["tests"].append(3),
        lambda c: c["tests"][1].update(group=None),
        lambda c: c["tests"][1].update(n_samples=-1),
        lambda c: c["overall"].update(n_rows=3),
        lambda c: c.pop("overall"),
        lambda c: c.update(known=[[]]),
    ],
)
def test_damaged_files(tmp_path, damage):
    h, y, g = grouped(100)
    GroupedTest(2.0).update(h, y, groups=g).save(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    damage(content)
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(FileError):
        load_test(tmp_path / "t.json")


def test_a_group_that_the_map_knows_less_well_has_a_tolerance_of_its_own(tmp_path):
    rng = np.random.default_rng(0)
    site = np.array(["large"] * 2000 + ["small"] * 8)
    z = 3 * rng.normal(size=(len(site), 4))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    ts = TemperatureScaling().fit(z, y, groups=site)
    found = ts.groups_
    known = max(found.ratio_high[1] / found.temperature_ratio[1], found.temperature_ratio[1] / found.ratio_low[1])
    test = GroupedTest(ts)
    test.save(tmp_path / "state.json")  # before any sample of the small group
    for one in (test, GroupedTest.load(tmp_path / "state.json")):
        one.update(z[1500:], y[1500:], groups=site[1500:])
        assert one.overall.tolerance == one.tests["large"].tolerance < one.tests["small"].tolerance
        assert one.tests["small"].tolerance == pytest.approx(known)
        alone = DriftTest(ts.group_maps_["small"], alpha=one.tests["small"].alpha, tolerance=known)
        alone.update(z[2000:], y[2000:])
        assert one.tests["small"].e_value == pytest.approx(alone.e_value)
        assert any("group small: tolerance" in line for line in one.describe())
        one.save(tmp_path / "later.json")
        assert GroupedTest.load(tmp_path / "later.json").tests["small"].tolerance == pytest.approx(known)
