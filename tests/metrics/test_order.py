"""Labels come first, as in scikit-learn; the other order is refused wherever shapes tell."""

import numpy as np
import pytest
import torch

from attemper import InputError, decisions, metrics

LABELS = np.array([0, 1, 1])
PROBS = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
SQUARE = np.array([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize(
    "name",
    ["accuracy", "aurc", "brier", "ece", "decompose", "evaluate", "mce", "mmce", "nll", "reliability", "smooth_ece"],
)
@pytest.mark.parametrize("first, second", [(PROBS, LABELS), (PROBS, LABELS[:, None]), (SQUARE, LABELS[:2])])
def test_probabilities_first_are_refused(name, first, second):
    with pytest.raises(TypeError, match=r"swapped.* labels of shape \(\d, 2\)"):
        getattr(metrics, name)(first, second)


def test_a_difference_in_the_order_of_0_1():
    with pytest.raises(TypeError, match="swapped"):
        metrics.referral_area_difference(PROBS, PROBS, LABELS)


def test_advice_fits_functions_that_take_probabilities_first():
    """A policy takes (probs, labels): keywords are right for both."""
    with pytest.raises(TypeError, match=r"swapped.*labels=….*probs=…"):
        decisions.policy_for_miss(LABELS, PROBS, 0.3)
    assert decisions.policy_for_miss(labels=LABELS, probs=PROBS, max_miss=0.3) is not None


def test_arguments_are_counted_as_the_caller_does():
    with pytest.raises(TypeError, match=r"ece\(\) takes 2 positional arguments but 3 were given"):
        metrics.ece(LABELS, PROBS, 15)


def test_old_keywords_name_the_new_ones():
    with pytest.raises(TypeError, match='input="log_probs"'):
        metrics.nll(LABELS, np.log(PROBS), log_probs=True)
    with pytest.raises(TypeError, match="'rationale'"):
        decisions.Policy(0.5, chosen="by hand", n_classes=2, n_samples=0)
    with pytest.raises(TypeError, match="'confidence_level'"):
        decisions.Guarantee(0.1, level=0.9, miss_rate_of="all")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_has_no_shape_is_refused_by_name():
    for ragged in ([[0.9, 0.1], [1.0]], torch.nested.nested_tensor([torch.rand(2), torch.rand(3)])):
        with pytest.raises(InputError, match="probabilities"):
            metrics.ece([0, 1], ragged)
