"""Power scaling, a calibrator and its map in a package of their own."""

from attemper_power.calibrator import PowerScaling
from attemper_power.map import PowerMap

__all__ = ["PowerMap", "PowerScaling"]
