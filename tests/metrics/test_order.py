"""Labels come first, as in scikit-learn; the other order is refused wherever shapes tell."""

import numpy as np
import pytest

from attemper import decisions, metrics

LABELS = np.array([0, 1, 1])
PROBS = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
SQUARE = np.array([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize(
    "name",
    ["accuracy", "aurc", "brier", "ece", "decompose", "evaluate", "mce", "mmce", "nll", "reliability", "smooth_ece"],
)
@pytest.mark.parametrize("first, second", [(PROBS, LABELS), (PROBS, LABELS[:, None]), (SQUARE, LABELS[:2])])
def test_probabilities_first_are_refused(name, first, second):
    with pytest.raises(TypeError):
        getattr(metrics, name)(first, second)


def test_advice_fits_functions_that_take_probabilities_first():
    """A policy takes (probs, labels): keywords are right for both."""
    with pytest.raises(TypeError):
        decisions.policy_for_miss(LABELS, PROBS, 0.3)
    assert decisions.policy_for_miss(labels=LABELS, probs=PROBS, max_miss=0.3) is not None
