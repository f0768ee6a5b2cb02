"""Monitors of a deployed map: sequential tests, safe to run after every batch, and estimates without labels.

`DriftTest` tests the map's temperature; `ExchangeabilityTest` compares new data with a reference set; `GroupedTest`
does either in each group. Each has a bound on the probability of ever raising a false alarm. `UnlabelledMonitor`
estimates accuracy and class priors without labels.
"""

from attemper.drift.confidence import PriorShift, UnlabelledEstimates
from attemper.drift.exchangeability import ExchangeabilityTest
from attemper.drift.files import load_test
from attemper.drift.groups import GroupedTest
from attemper.drift.temperature import Drift, DriftTest
from attemper.drift.unlabelled import UnlabelledMonitor

__all__ = [
    "Drift",
    "DriftTest",
    "ExchangeabilityTest",
    "GroupedTest",
    "PriorShift",
    "UnlabelledEstimates",
    "UnlabelledMonitor",
    "load_test",
]
