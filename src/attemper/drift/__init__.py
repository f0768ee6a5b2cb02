"""Sequential tests of a deployed map: safe to run after every batch, with a bound on ever raising a false alarm.

`DriftTest` tests the map's temperature; `ExchangeabilityTest` compares labelled data with a reference set.
"""

from attemper.drift.exchangeability import ExchangeabilityTest
from attemper.drift.sequential import load_test
from attemper.drift.temperature import Drift, DriftTest

__all__ = ["Drift", "DriftTest", "ExchangeabilityTest", "load_test"]
