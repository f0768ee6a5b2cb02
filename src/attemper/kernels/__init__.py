"""The maths, on NumPy arrays: no files, no estimators.

Symbols as in the paper: ``h`` logits (n×K), ``y`` labels, ``w`` weights,
``beta`` = 1/T, ``S`` = softmax(beta · h), ``theta`` the threshold of Eq. (7).
"""
