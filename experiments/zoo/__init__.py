"""Training of the image classifiers whose held-out logits are in ``data/``; README.md tells how to use it."""
