"""Experiments whose results are in ``docs/results``. Run them from the root of the repository."""
