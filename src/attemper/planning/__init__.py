"""How many labels you need, before you pay for them; and which samples to label.

Each ``labels_for_…`` returns a `Plan`: the number of labels, and the curve behind it. A pilot is a small set
of the same kind of samples, with labels or without; where there is none, `typical_network` stands in for it.
"""

from attemper.planning.certificate import labels_for_certificate
from attemper.planning.choosing import ChosenSamples, choose_samples
from attemper.planning.coverage import labels_for_coverage
from attemper.planning.metric import labels_for_metric
from attemper.planning.plan import Plan
from attemper.planning.temperature import labels_for_temperature
from attemper.planning.typical import typical_network

__all__ = [
    "ChosenSamples",
    "Plan",
    "choose_samples",
    "labels_for_certificate",
    "labels_for_coverage",
    "labels_for_metric",
    "labels_for_temperature",
    "typical_network",
]
