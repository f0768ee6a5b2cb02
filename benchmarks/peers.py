"""Other packages' calibrators as functions: ``fit(h, y)`` returns the function from logits to log-probabilities.

peers.txt has the versions. They run quietly and in one thread.
"""

from __future__ import annotations

import contextlib
import io
from functools import partial
from importlib import import_module

import numpy as np
from scipy.special import softmax


def on_logits(name, h, y):
    """Fit one of probmetrics' calibrators to logits."""
    calibrators, distributions = import_module("probmetrics.calibrators"), import_module("probmetrics.distributions")
    torch = import_module("torch")
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        fitted = calibrators.get_calibrator(name)
        fitted.fit_torch(distributions.CategoricalLogits(torch.as_tensor(h)), torch.as_tensor(y))

    def predict(logits):
        made = fitted.predict_proba_torch(distributions.CategoricalLogits(torch.as_tensor(logits)))
        return np.log(np.maximum(made.get_probs().numpy(), 1e-300))

    return predict


def on_probs(module, name, h, y, **settings):
    """Fit one of probmetrics' calibrators that take probabilities."""
    with contextlib.redirect_stdout(io.StringIO()):
        fitted = getattr(import_module(module), name)(**settings)
        fitted.fit(softmax(h, axis=1), y)

    def predict(logits):
        with contextlib.redirect_stdout(io.StringIO()):
            return np.log(np.maximum(np.asarray(fitted.predict_proba(softmax(logits, axis=1))), 1e-300))

    return predict


def one_column(name, h, y):
    """Fit a scaling method of netcal for two classes."""
    fitted = getattr(import_module("netcal.scaling"), name)()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        fitted.fit(softmax(h, axis=1)[:, 1], y)

    def predict(logits):
        q = np.ravel(fitted.transform(softmax(logits, axis=1)[:, 1]))
        return np.log(np.maximum(np.column_stack([1 - q, q]), 1e-300))

    return predict


def one_versus_rest(name, h, y):
    """Do what CalibratedClassifierCV does for a fitted classifier: a curve for each class, then a division."""
    from sklearn.calibration import _SigmoidCalibration
    from sklearn.isotonic import IsotonicRegression

    p = softmax(h, axis=1)
    columns = [1] if p.shape[1] == 2 else range(p.shape[1])
    make = partial(IsotonicRegression, out_of_bounds="clip", y_min=0, y_max=1)
    make = make if name == "isotonic" else _SigmoidCalibration
    curves = {k: make().fit(p[:, k], (y == k).astype(float)) for k in columns}

    def predict(logits):
        p = softmax(logits, axis=1)
        q = np.column_stack([curve.predict(p[:, k]) for k, curve in curves.items()])
        q = np.hstack([1 - q, q]) if p.shape[1] == 2 else q
        total = q.sum(axis=1, keepdims=True)
        return np.log(np.maximum(np.where(total > 0, q / np.where(total > 0, total, 1), 1 / p.shape[1]), 1e-300))

    return predict


def _binary(kind):
    return partial(on_probs, "probmetrics.calibrators", "BinaryLogisticCalibrator", type=kind)


# With the numbers of classes that they are meant for.
PEERS = {
    "TS (probmetrics)": (partial(on_logits, "temp-scaling"), "any"),
    "TS-mix (probmetrics)": (partial(on_logits, "ts-mix"), "any"),
    "affine (probmetrics)": (_binary("affine"), "two"),
    "quadratic (probmetrics)": (_binary("quadratic"), "two"),
    "beta (probmetrics)": (_binary("beta"), "two"),
    "SVS (probmetrics)": (partial(on_logits, "svs"), "any"),
    "SMS (probmetrics)": (partial(on_logits, "sms"), "any"),
    "Venn–Abers (venn-abers)": (partial(on_probs, "probmetrics.calibrators", "VennAbersCalibrator"), "any"),
    "isotonic (scikit-learn)": (partial(one_versus_rest, "isotonic"), "any"),
    "sigmoid (scikit-learn)": (partial(one_versus_rest, "sigmoid"), "any"),
    "logistic (netcal)": (partial(one_column, "LogisticCalibration"), "two"),
    "beta (netcal)": (partial(one_column, "BetaCalibration"), "two"),
}


def meant_for(name, n_classes):
    """Return whether a method, ours or a peer's, is meant for this number of classes."""
    return name not in PEERS or n_classes == 2 or PEERS[name][1] == "any"
