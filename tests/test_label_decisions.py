"""Referral of labels that do not exclude each other."""

import json

import numpy as np
import pytest

from attemper import FileError
from attemper.decisions import LabelPolicies, label_policies, policy_for_budget, policy_for_miss


def draw(n=2000, seed=0, labels=3):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.3, 0.5, size=(n, labels))
    y = (rng.random(p.shape) < p).astype(float)
    y[rng.random(y.shape) < 0.1] = np.nan
    return y, p


def known(y, p, k):
    some = ~np.isnan(y[:, k])
    return y[some, k].astype(int), p[some, k]


@pytest.mark.parametrize("simultaneous", [True, False])
def test_policies_are_those_of_two_classes(simultaneous):
    y, p = draw()
    found = label_policies(p, y, max_miss=0.1, confidence_level=0.9, simultaneous=simultaneous)
    level = 1 - 0.1 / 3 if simultaneous else 0.9
    for k in range(3):
        truth, own = known(y, p, k)
        expected = policy_for_miss(np.column_stack([1 - own, own]), truth, 0.1, confidence_level=level)
        assert found.policies[k].threshold == expected.threshold
    decisions = found.refer_or_decide(p)
    assert decisions.refer.shape == p.shape
    np.testing.assert_array_equal(decisions.prediction, p > 0.5)
    np.testing.assert_allclose(decisions.confidence, np.maximum(p, 1 - p))
    outcomes = found.outcomes(*draw(seed=5))
    assert list(outcomes) == ["0", "1", "2"]
    assert all(outcome.all.miss_rate.value < 0.12 for outcome in outcomes.values())


def test_budget_and_cost():
    y, p = draw()
    by_budget = label_policies(p, budget=0.2, label_names=["a", "b", "c"])
    assert by_budget.policies[1].threshold == policy_for_budget(np.column_stack([1 - p[:, 1], p[:, 1]]), 0.2).threshold
    assert by_budget.refer_or_decide(p).refer.mean(axis=0) == pytest.approx([0.2] * 3, abs=0.01)
    by_cost = label_policies(p, y, cost_refer=1, cost_miss=[5, 50])
    assert by_cost.policies[0].cost_miss == (5, 50)
    table = by_budget.to_pandas()
    assert table["label"].tolist() == ["a", "b", "c"]


def test_files(tmp_path):
    y, p = draw()
    found = label_policies(p, y, max_miss=0.1, label_names=["a", "b", "c"])
    found.save(tmp_path / "policies.json")
    assert LabelPolicies.load(tmp_path / "policies.json") == found
    content = json.loads((tmp_path / "policies.json").read_text())
    (tmp_path / "bad.json").write_text(json.dumps(content | {"label_names": 3}))
    with pytest.raises(FileError):
        LabelPolicies.load(tmp_path / "bad.json")


def test_labels_without_entries_are_referred():
    y, p = draw()
    y[:, 1] = np.nan
    found = label_policies(p, y, max_miss=0.1)
    assert not found.policies[1].reached
    assert found.refer_or_decide(p).refer[:, 1].all()
    assert list(found.outcomes(y, p)) == ["0", "2"]
