"""Training of the image classifiers whose held-out logits are in ``data/``; README.md describes how to use it."""
