"""Experiments whose results are kept in the repository; they are run from its root and are no part of the package."""
