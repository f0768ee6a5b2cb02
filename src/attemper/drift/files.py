"""Reading any saved state of this folder."""

from __future__ import annotations

import os

from attemper._json import read_document
from attemper.drift.exchangeability import ExchangeabilityTest
from attemper.drift.groups import GroupedTest
from attemper.drift.temperature import DriftTest
from attemper.drift.unlabelled import UnlabelledMonitor

__all__ = ["Watch", "load_test"]

Watch = DriftTest | ExchangeabilityTest | GroupedTest | UnlabelledMonitor


def load_test(path: str | os.PathLike[str]) -> Watch:
    """Read the state of any test or monitor, such as `DriftTest`, that ``save`` wrote."""
    kinds: tuple[type[Watch], ...] = (DriftTest, ExchangeabilityTest, GroupedTest, UnlabelledMonitor)
    by_document = {cls.document: cls for cls in kinds}
    content = read_document(path, *by_document)
    return by_document[content.text("attemper")]._from_fields(content)
