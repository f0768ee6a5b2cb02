"""Maps: functions from logits to calibrated probabilities, applied at inference.

A calibrator is a recipe; a map is its result, and all that production needs.
Maps take any array (NumPy, torch on its device, JAX, …) and give back the same kind,
device and precision.
"""

from __future__ import annotations

from attemper.maps.affine import AffineMap
from attemper.maps.base import Map, OutputKind, map_from_fields
from attemper.maps.bins import BinMap
from attemper.maps.labels import SigmoidMap
from attemper.maps.odds import OddsMap
from attemper.maps.scale import MixtureMap, ScaleMap
from attemper.maps.tilted import TiltedMap, tilted

__all__ = [
    "AffineMap",
    "BinMap",
    "Map",
    "MixtureMap",
    "OddsMap",
    "OutputKind",
    "ScaleMap",
    "SigmoidMap",
    "TiltedMap",
    "map_from_fields",
    "tilted",
]
