"""Pure functions on NumPy arrays: the maths of the temperature family, and nothing else.

Symbols as in the paper: ``h`` logits (n×K), ``y`` labels, ``w`` weights,
``beta`` = 1/T, ``S`` = softmax(beta · h), ``theta`` the threshold of Eq. (7).
"""
