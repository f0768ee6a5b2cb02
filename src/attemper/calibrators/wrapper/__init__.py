"""Classifiers in, not logits: scikit-learn estimators and torch modules with a calibrator behind them."""

from attemper.calibrators.wrapper.classifier import CalibratedClassifier
from attemper.calibrators.wrapper.files import DOCUMENT

__all__ = ["DOCUMENT", "CalibratedClassifier"]
