"""Averages over several forward passes: Monte Carlo dropout and deep ensembles."""

from attemper.ensembles.averages import EnsemblePrediction, average
from attemper.ensembles.networks import DeepEnsemble, MCDropout

__all__ = ["DeepEnsemble", "EnsemblePrediction", "MCDropout", "average"]
