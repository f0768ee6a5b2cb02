"""Monitors of a deployed map: sequential tests, safe to run after every batch.

`DriftTest` tests the map's temperature; `ExchangeabilityTest` compares new data with a reference set. Each has a bound
on the probability of ever raising a false alarm. `expected_accuracy` estimates accuracy without labels.
"""

from __future__ import annotations

import os

from attemper._json import read_document
from attemper.drift.confidence import expected_accuracy
from attemper.drift.exchangeability import ExchangeabilityTest
from attemper.drift.temperature import Drift, DriftTest

__all__ = ["Drift", "DriftTest", "ExchangeabilityTest", "expected_accuracy", "load_test"]


def load_test(path: str | os.PathLike[str]) -> DriftTest | ExchangeabilityTest:
    """Read the state of a test that ``save`` wrote."""
    content = read_document(path, DriftTest.document, ExchangeabilityTest.document)
    cls = DriftTest if content.text("attemper") == DriftTest.document else ExchangeabilityTest
    return cls._from_fields(content)
