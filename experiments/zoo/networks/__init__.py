"""The networks, one family in one file."""

from experiments.zoo.networks.catalogue import ARCHITECTURES, build_network
from experiments.zoo.networks.layers import Dropout

__all__ = ["ARCHITECTURES", "Dropout", "build_network"]
