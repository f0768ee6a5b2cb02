"""Averages over several forward passes: Monte Carlo dropout and deep ensembles."""

from attemper.torch.ensembles.averages import EnsemblePrediction, average
from attemper.torch.ensembles.networks import DeepEnsemble, MCDropout

__all__ = ["DeepEnsemble", "EnsemblePrediction", "MCDropout", "average"]
